"""Proof of being awake: what we write must come back through a watch.

A watch can die silently (Kopf #957, #1276) while every probe still says 200. So the operator measures two round trips.
A watch of its own must show the Lease, which the leader renews every few seconds. Every status write must come back as
an event of that kind through Kopf.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kinds import LEASE

log = logging.getLogger(__name__)

LIMIT_SECONDS = 30.0


class WatchLiveness:
    """Remembers what has not come back yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lease_seen = clock()
        self._expected: dict[tuple[str, str, str], tuple[int, float]] = {}
        self._newest: dict[tuple[str, str, str], int] = {}

    def expect(self, kind: str, namespace: str, name: str, version: str) -> None:
        """A write produced resourceVersion `version`: an event at least that new must follow (or came already)."""
        key = (kind, namespace, name)
        if not version.isdigit() or self._newest.get(key, -1) >= int(version):
            return
        since = self._expected[key][1] if key in self._expected else self._clock()
        self._expected[key] = (int(version), since)

    def seen(self, kind: str, namespace: str, name: str, version: str, *, deleted: bool = False) -> None:
        """An event arrived."""
        key = (kind, namespace, name)
        number = int(version) if version.isdigit() else 0
        if deleted:
            self._newest.pop(key, None)
        else:
            self._newest[key] = max(number, self._newest.get(key, -1))
        expected = self._expected.get(key)
        if expected and (deleted or number >= expected[0]):
            del self._expected[key]

    def lease_seen(self) -> None:
        """The Lease's watch delivered a change."""
        self._lease_seen = self._clock()

    def lags(self) -> dict[str, float]:
        """Seconds by source (`lease`, or a kind with writes that have not come back)."""
        now = self._clock()
        lags = {"lease": now - self._lease_seen}
        for (kind, _, _), (_, since) in self._expected.items():
            lags[kind] = max(lags.get(kind, 0.0), now - since)
        return lags

    def silence(self) -> str | None:
        """Why this process must be replaced; None while it is awake."""
        for source, lag in self.lags().items():
            if lag > LIMIT_SECONDS:
                return f"the {source} watch has delivered nothing for {lag:.0f} s (limit {LIMIT_SECONDS:.0f} s)"
        return None


async def watch_lease(
    kube: KubeClient, namespace: str, name: str, echo: WatchLiveness, noticed: Callable[[Mapping[str, Any]], None]
) -> None:
    """Report each change of the Lease to `echo`, and the Lease itself to `noticed`, until cancelled."""
    while True:
        try:
            async for type_, lease in kube.watch(LEASE, namespace, fields=f"metadata.name={name}", seconds=120):
                if type_ in ("ADDED", "MODIFIED"):
                    echo.lease_seen()
                    noticed(lease)
        except KubeError as error:
            log.warning("lease watch: %s", error)
        await asyncio.sleep(1.0)
