"""Certificates: the bundle of authorities in each namespace, and the expiry of the operator's own certificate."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate
from prometheus_client import Gauge

from learnloop_api import names
from learnloop_operator.kube import fenced_client, kinds

log = logging.getLogger(__name__)
MANAGER = "learnloop-trust"
LOOK_SECONDS = 30.0
"""Seconds until a changed or deleted ConfigMap is restored."""


class TrustBundles:
    """Keeps the bundle of `file`, which is one of the operator's own mounts, in each namespace that it works in."""

    def __init__(self, kube: fenced_client.KubeClient, file: Path, clock: Callable[[], float]) -> None:
        self._kube, self._file, self._clock = kube, file, clock
        self._there: dict[str, tuple[str, float]] = {}
        """Each certificate that was read or written, and when."""

    async def ensure(self, namespace: str) -> None:
        """The namespace has the bundle as it is now: pods that are made after this find it.

        Raises:
            OSError: the file cannot be read.
            KubeError: the API server refuses.
        """
        bundle = self._file.read_text(encoding="utf-8")
        previous, since = self._there.get(namespace, ("", 0.0))
        if previous == bundle and self._clock() - since < LOOK_SECONDS:
            return
        live = await self._kube.find(kinds.CONFIG_MAP, namespace, names.CA_CONFIG_MAP)
        if live is None or (live.get("data") or {}).get(names.CA_KEY) != bundle:
            manifest = {
                "apiVersion": kinds.CONFIG_MAP.api_version,
                "kind": kinds.CONFIG_MAP.kind,
                "metadata": {
                    "name": names.CA_CONFIG_MAP,
                    "namespace": namespace,
                    "labels": {names.LABEL_PART_OF: names.MANAGED_BY},
                },
                "data": {names.CA_KEY: bundle},
            }
            await self._kube.apply(manifest, MANAGER, live=live)
            log.info("namespace %s has the bundle of the authorities", namespace)
        self._there[namespace] = (bundle, self._clock())

    def forget(self, namespace: str) -> None:
        """Something of ours left the namespace: the next pass there looks again."""
        self._there.pop(namespace, None)


def show_expiry(gauge: Gauge) -> None:
    """Set the gauge to the end of this process's certificate. All parts' certificates are renewed together."""
    file = os.environ.get(names.ENV_TLS_CERTIFICATE, "")
    try:
        gauge.set(load_pem_x509_certificate(Path(file).read_bytes()).not_valid_after_utc.timestamp())
    except (OSError, ValueError) as error:
        log.warning("%s=%s: cannot read the certificate: %s", names.ENV_TLS_CERTIFICATE, file, error)
