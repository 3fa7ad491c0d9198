"""Leader election on a coordination.k8s.io Lease, with a fence: whoever cannot prove it leads does not write.

The rules are those of client-go's leaderelection: a standby takes over when it has seen no renewal for the whole lease
duration *by its own clock* (clocks of different machines are never compared), and every write carries the
resourceVersion it is based on, so two processes can never both believe they won the same round.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.adapters.kinds import LEASE
from learnloop_operator.adapters.kube import KubeClient
from learnloop_operator.adapters.kube_errors import Conflict, KubeError, NotLeading

log = logging.getLogger(__name__)

LEASE_SECONDS = 13.0
FENCE_SECONDS = 9.5
"""We stop writing this long after the last proven renewal: well before anyone else may take over."""
RENEW_SECONDS = 4.0
"""Between two renewals, and how long one may take: a single one without an answer leaves time for another."""
RETRY_SECONDS = 2.0


class Holder:
    """Takes and keeps one Lease for `identity`; `held` says whether that is proven right now.

    `lease_seconds`: how long the others wait without a renewal; `fence_seconds`: how long a renewal is proof to us.
    """

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        fence_seconds: float = FENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name
        self.identity = identity
        self._lease_seconds, self._fence_seconds, self._clock = lease_seconds, fence_seconds, clock
        self._held_until = float("-inf")
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._seen_duration = lease_seconds

    @property
    def held(self) -> bool:
        """Proven, by this process's own clock."""
        return self._clock() < self._held_until

    @property
    def holder(self) -> str:
        """Who held it when it was last read; "" for nobody."""
        return self._seen[0] if self._seen else ""

    async def attempt(self) -> bool:
        """Take or renew it; False when somebody else holds it, or nothing can be told."""
        started = self._clock()
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                won = await self._take(await self._kube.find(LEASE, self._namespace, self._name))
        except (Conflict, TimeoutError) as error:
            log.debug("lease %s/%s: %s", self._namespace, self._name, error or "timeout")
            return False
        except KubeError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        if won:
            self._seen = (self.identity, "")
        # Else somebody else holds it: whatever the reason, we are not the one.
        self._held_until = started + self._fence_seconds if won else float("-inf")
        return won

    def saw(self, lease: Mapping[str, Any]) -> tuple[str, float]:
        """Its holder ("" for nobody) and how long that is to be respected without a renewal.

        By a watch as well as by our own reads: the holder's silence then begins with its last renewal, and not with our
        next look at it. An event that comes late can only make us wait longer.
        """
        spec = lease.get("spec") or {}
        seen = (str(spec.get("holderIdentity") or ""), str(spec.get("renewTime")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        self._seen_duration = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
        return seen[0], self._seen_duration

    async def _take(self, lease: dict[str, Any] | None) -> bool:
        if lease is None:
            manifest = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec({}),
            }
            await self._kube.create(manifest)
            return True
        holder, duration = self.saw(lease)
        if holder not in ("", self.identity) and self._clock() - self._seen_at < duration:
            return False
        await self._kube.replace({**lease, "spec": self._spec(lease.get("spec") or {})})
        return True

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        mine = before.get("holderIdentity") == self.identity
        now = _now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._lease_seconds),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if mine else now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if mine or not before else 1),
        }


class Leadership(Holder):
    """Runs for the Lease `name` until told to stop; `held` says whether writing is allowed right now.

    `kube` must be a client of its own without a guard: the Lease is what the guard of the others rests on.
    """

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(kube, namespace, name, f"{identity}_{uuid.uuid4().hex[:8]}", clock=clock)
        self.acquired = asyncio.Event()
        self.lost = asyncio.Event()
        self._given_up = asyncio.Event()

    def noticed(self, lease: Mapping[str, Any]) -> None:
        """A watch delivered the Lease: who waits for it need not find out by its next look that it was given up."""
        if not self.saw(lease)[0]:
            self._given_up.set()

    def guard(self) -> None:
        """Raise NotLeading unless the Lease is held."""
        if not self.held:
            raise NotLeading("this process does not hold the Lease: it writes nothing")

    async def run(self) -> None:
        """Acquire, then renew for ever; returns (with `lost` set) when the Lease could not be renewed in time."""
        won = False
        while not won:
            self._given_up.clear()
            won = await self.attempt()
            if not won:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._given_up.wait(), min(RETRY_SECONDS, self._expires_in()))
        log.info("leading as %s", self.identity)
        self.acquired.set()
        while self.held:
            ok = await self.attempt()
            await asyncio.sleep(RENEW_SECONDS if ok else RETRY_SECONDS / 2)
        log.error("the Lease %s/%s could not be renewed in time: stop", self._namespace, self._name)
        self.lost.set()

    async def release(self) -> None:
        """Let the standby take over at once; errors do not matter, the Lease runs out by itself."""
        held, self._held_until = self.held, float("-inf")
        if not held:
            return
        try:
            lease = await self._kube.get(LEASE, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._kube.replace(lease)
        except KubeError as error:
            log.warning("the Lease was not released: %s", error)

    def _expires_in(self) -> float:
        """Seconds until the holder we last saw may be replaced, by our own clock; never 0, so as not to spin."""
        return max(0.1, self._seen_at + self._seen_duration - self._clock() + 0.02)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
