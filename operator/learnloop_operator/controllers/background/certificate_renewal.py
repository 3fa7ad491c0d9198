"""Looks after certificates in the background: the leader renews its parts', and spreads the bundle of authorities."""

import asyncio
import logging
from collections.abc import Callable, Collection

from prometheus_client import Gauge

from learnloop_operator.adapters.certificates.keeper import CertificateKeeper
from learnloop_operator.adapters.certificates.trust_bundles import TrustBundles
from learnloop_operator.adapters.kube.errors import KubeError
from learnloop_operator.adapters.leadership.leader_lease import Leadership

log = logging.getLogger(__name__)
LOOK_SECONDS = 300.0
SPREAD_SECONDS = 30.0


class CertificateRenewal:
    """The leader looks every few minutes; nothing is lost by a look that fails, for a third of each life is left."""

    def __init__(
        self,
        keeper: CertificateKeeper,
        leadership: Leadership | None,
        expiry: Gauge | None = None,
        seconds: float = LOOK_SECONDS,
    ) -> None:
        """`leadership`: None where another shard renews; `expiry`, by Secret: what shows when each certificate ends."""
        self._keeper, self._leadership, self._expiry, self._seconds = keeper, leadership, expiry, seconds

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self._leadership is not None and self._leadership.held:
                    await self._keeper.look()
                    self._tell()
                await self._keeper.copy_own()  # who stands by serves its metrics, too
            except (KubeError, TimeoutError) as error:
                log.warning("certificates were not looked after, next look in %.0f s: %s", self._seconds, error)
            await asyncio.sleep(self._seconds)

    def _tell(self) -> None:
        if self._expiry is not None:
            for secret, ends in self._keeper.ends.items():
                self._expiry.labels(secret=secret).set(ends.timestamp())


class TrustSpreading:
    """A bundle that changed reaches every namespace soon, not only those with something to do."""

    def __init__(self, trust: TrustBundles, mine: Callable[[], Collection[str]]) -> None:
        self._trust, self._mine = trust, mine

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for namespace in sorted(self._mine()):
                try:
                    await self._trust.ensure(namespace)
                except (KubeError, OSError, TimeoutError) as error:
                    log.warning("namespace %s has no bundle of the authorities: %s", namespace, error)
            await asyncio.sleep(SPREAD_SECONDS)
