"""Spreads the bundle of authorities in the background, and shows when the operator's own certificate ends."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from prometheus_client import Gauge

from learnloop_api import names
from learnloop_common.tls.certificates import NotACertificate, read
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.trust_bundles import TrustBundles

log = logging.getLogger(__name__)
SPREAD_SECONDS = 30.0


class TrustSpreading:
    """A bundle that changed reaches every namespace soon, not only those with something to do."""

    def __init__(self, trust: TrustBundles, mine: Callable[[], Collection[str]], expiry: Gauge) -> None:
        self._trust, self._mine, self._expiry = trust, mine, expiry

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            show_expiry(self._expiry)
            for namespace in sorted(self._mine()):
                try:
                    await self._trust.ensure(namespace)
                except (KubeError, OSError, TimeoutError) as error:
                    log.warning("namespace %s has no bundle of the authorities: %s", namespace, error)
            await asyncio.sleep(SPREAD_SECONDS)


def show_expiry(gauge: Gauge) -> None:
    """Set the gauge to the end of this process's certificate. All parts' certificates are renewed together."""
    file = os.environ.get(names.ENV_TLS_CERTIFICATE, "")
    try:
        gauge.set(read(Path(file).read_text(encoding="utf-8")).ends.timestamp())
    except (OSError, NotACertificate) as error:
        log.warning("%s=%s: cannot read the certificate: %s", names.ENV_TLS_CERTIFICATE, file, error)
