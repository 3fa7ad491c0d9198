"""The ConfigMap by which a namespace's pods know the installation's certificates."""

import logging
from collections.abc import Callable
from pathlib import Path

from learnloop_api import names
from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.kinds import CONFIG_MAP

log = logging.getLogger(__name__)
MANAGER = "learnloop-trust"
LOOK_SECONDS = 30.0
"""How soon a ConfigMap that somebody changed or deleted is as it was."""


class TrustBundles:
    """Keeps the bundle of `file`, which is one of the operator's own mounts, in each namespace that it works in."""

    def __init__(self, kube: KubeClient, file: Path, clock: Callable[[], float]) -> None:
        self._kube, self._file, self._clock = kube, file, clock
        self._there: dict[str, tuple[str, float]] = {}
        """What was found or put where, and when."""

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
        live = await self._kube.find(CONFIG_MAP, namespace, names.CA_CONFIG_MAP)
        if live is None or (live.get("data") or {}).get(names.CA_KEY) != bundle:
            manifest = {
                "apiVersion": CONFIG_MAP.api_version,
                "kind": CONFIG_MAP.kind,
                "metadata": {
                    "name": names.CA_CONFIG_MAP,
                    "namespace": namespace,
                    "labels": {names.LABEL_PART_OF: names.MANAGED_BY},
                },
                "data": {names.CA_KEY: bundle},
            }
            await self._kube.apply(manifest, MANAGER, live=None)
            log.info("namespace %s has the bundle of the authorities", namespace)
        self._there[namespace] = (bundle, self._clock())

    def forget(self, namespace: str) -> None:
        """Something of ours left the namespace: the next pass there looks again."""
        self._there.pop(namespace, None)
