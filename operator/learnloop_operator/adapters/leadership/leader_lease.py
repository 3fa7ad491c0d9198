"""Leader election on a coordination.k8s.io Lease, with a fence: a process that cannot prove it leads does not write.

The rules are those of client-go's leaderelection. A standby takes over when it has seen no renewal for the whole lease
duration *by its own clock*; clocks of different machines are never compared. Every write carries the resourceVersion it
is based on, so two processes can never both believe they won the same round. What becomes of writes under way, and of a
process that is stopped in the middle of one: docs/decisions/0028-lease-fenced-writes.md.
"""

import asyncio
import logging
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.adapters.kube.client import KubeClient
from learnloop_operator.adapters.kube.errors import Conflict, KubeError, NotFound, NotLeading
from learnloop_operator.adapters.kube.kinds import LEASE
from learnloop_operator.adapters.leadership.boot_clock import since_boot

log = logging.getLogger(__name__)

LEASE_SECONDS = 13.0
FENCE_SECONDS = 9.5
"""So long after the request of the last proven renewal a write may begin."""
OVER_SECONDS = 12.0
"""So long after it every write has ended or was given up, and a process that does not run is ended."""
RENEW_SECONDS = 4.0
"""From the beginning of one renewal to the next."""
ATTEMPT_SECONDS = 6.0
"""How long one may take: an API server that needs five seconds for an answer is still one that answers."""
RETRY_SECONDS = 2.0
AGAIN_SECONDS = 0.5
"""After a renewal that failed."""
STALLED_SECONDS = 30.0
"""A process whose event loop has stood still for so long does nothing: somebody else is to lead."""


class Holder:
    """Takes and keeps one Lease for `identity`; `held` says whether that is proven right now.

    `lease_seconds`: how long the others wait without a renewal; `fence_seconds`: how long a renewal is proof to us.
    `annotations`: what it says beside its holder. `vacant`: asked with a holder and the namespace, whether that holder
    is known to do nothing any more, whatever its renewals say.
    """

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_seconds: float,
        fence_seconds: float,
        clock: Callable[[], float] = since_boot,
        annotations: Mapping[str, str] | None = None,
        vacant: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name
        self._annotations, self._vacant = dict(annotations or {}), vacant
        self.identity = identity
        self._lease_seconds, self._fence_seconds, self._clock = lease_seconds, fence_seconds, clock
        self._held_until = float("-inf")
        self._written: dict[str, Any] | None = None
        """The Lease as we last wrote it: while nobody else has, one request renews it."""
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
            async with asyncio.timeout(ATTEMPT_SECONDS):
                won = await self._renew() or await self._take(await self._kube.find(LEASE, self._namespace, self._name))
        except (Conflict, TimeoutError) as error:
            log.debug("lease %s/%s: %s", self._namespace, self._name, error or "timeout")
            return False
        except KubeError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        if won:
            self._seen = (self.identity, "")
        # Else somebody else holds it: whatever the reason, we are not the one.
        self._hold_until(started + self._fence_seconds if won else float("-inf"))
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

    def _hold_until(self, when: float) -> None:
        self._held_until = when

    async def _renew(self) -> bool:
        """With one request; False when somebody else wrote since."""
        if self._written is None:
            return False
        try:
            await self._write(self._written)
        except (Conflict, NotFound):
            self._written = None
            return False
        return True

    async def _take(self, lease: dict[str, Any] | None) -> bool:
        if lease is None:
            if await self._may_live():
                return False  # somebody else deleted it; its holder finds out by its next renewal, and makes it anew
            manifest = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": self._name, "namespace": self._namespace, "annotations": self._annotations},
                "spec": self._spec({}),
            }
            self._written = await self._kube.create(manifest)
            return True
        self.saw(lease)
        if await self._may_live():
            return False
        await self._write(lease)
        return True

    async def _may_live(self) -> bool:
        """Another holder was seen so lately that it may still work."""
        if self.holder in ("", self.identity) or self._clock() - self._seen_at >= self._seen_duration:
            return False
        return self._vacant is None or not await self._vacant(self.holder, self._namespace)

    async def _write(self, lease: dict[str, Any]) -> None:
        if self._annotations:
            metadata = lease["metadata"]
            lease = {**lease, "metadata": {**metadata, "annotations": {**_said(metadata), **self._annotations}}}
        self._written = await self._kube.replace({**lease, "spec": self._spec(lease.get("spec") or {})})

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

    `kube` must be a client of its own without a guard: the Lease is what the guard of the others rests on. `run`,
    `release` and `noticed` belong to one event loop, which need not be the one that writes; everything else may be
    asked from any thread. `tell` calls a function on the loop that waits for `acquired`. `switch` is told after how
    many seconds this process must not run any more, unless it is told again; 0: it may.
    """

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float] = since_boot,
        tell: Callable[[Callable[[], None]], object] = lambda call: call(),
        switch: Callable[[float], None] = lambda _seconds: None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            kube,
            namespace,
            name,
            f"{identity}_{uuid.uuid4().hex[:8]}",
            lease_seconds=LEASE_SECONDS,
            fence_seconds=FENCE_SECONDS,
            clock=clock,
            annotations=annotations,
        )
        self._tell, self._switch = tell, switch
        self.acquired = asyncio.Event()
        self._given_up = asyncio.Event()
        self._turn = asyncio.Lock()
        self._change = threading.Lock()
        """Of `held` and the switch together."""
        self._led = self._ousted = self._ended = False
        self._beaten = clock()

    def noticed(self, lease: Mapping[str, Any]) -> None:
        """A watch delivered the Lease: who waits for it need not find out by its next look that it was given up."""
        if not self.saw(lease)[0]:
            self._given_up.set()

    def guard(self) -> float:
        """Seconds after which a write that begins now must be over. Raises NotLeading unless the Lease is held."""
        left = self._held_until - self._clock()
        if left <= 0.0:
            raise NotLeading("this process does not hold the Lease: it writes nothing")
        return left + OVER_SECONDS - FENCE_SECONDS

    def beat(self) -> None:
        """The loop that writes is alive: without this the Lease is not renewed for longer than STALLED_SECONDS."""
        self._beaten = self._clock()

    def lapsed(self) -> None:
        """To be called by the loop that writes, when nothing that began while the Lease was held waits there to be
        sent: it runs, and its guard refuses, so it need not be ended."""
        with self._change:
            if not self.held:
                self._switch(0.0)

    async def attempt(self) -> bool:
        """As a Holder; never once it was released, nor for a process that stands still."""
        async with self._turn:
            if self._ended:
                return False
            if self._clock() - self._beaten > STALLED_SECONDS:
                log.error("the event loop has stood still for %.0f s: somebody else is to lead", STALLED_SECONDS)
                return False
            return await super().attempt()

    async def run(self) -> None:
        """Acquire, then renew; returns when somebody else has led since, or after `release`.

        A renewal that is late is no end: until one succeeds nothing is written, and nobody else wrote the Lease in
        between when it does.
        """
        while not (self._led or self._ended):
            self._given_up.clear()
            self._led = await self.attempt()
            if not self._led:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._given_up.wait(), min(RETRY_SECONDS, self._expires_in()))
        if self._ended:
            return
        log.info("leading as %s", self.identity)
        self._tell(self.acquired.set)
        rest = RENEW_SECONDS
        while not (self._ousted or self._ended):
            await asyncio.sleep(rest)
            began = self._clock()
            renewed = await self.attempt()
            rest = max(0.0, began + RENEW_SECONDS - self._clock()) if renewed else AGAIN_SECONDS
            if not (self.held or self._ended):
                log.error("the Lease %s/%s was not renewed in time: nothing is written", self._namespace, self._name)

    async def release(self) -> None:
        """Let the standby take over at once; errors do not matter, the Lease runs out by itself."""
        perhaps_ours = self.held or self._turn.locked()
        self._ended = True
        self._hold_until(float("-inf"))
        if not perhaps_ours:
            return
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS), self._turn:  # after a renewal that is under way
                lease = await self._kube.get(LEASE, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self.identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                    await self._kube.replace(lease)
        except (KubeError, TimeoutError) as error:
            log.warning("the Lease was not released: %s", error or "timeout")

    def _hold_until(self, when: float) -> None:
        with self._change:
            if self._ended:
                when = float("-inf")
            left = when + OVER_SECONDS - FENCE_SECONDS - self._clock()
            if left > 0.0:
                self._switch(left)  # first: stopped between the two, we would lead without a switch
            super()._hold_until(when)

    async def _take(self, lease: dict[str, Any] | None) -> bool:
        if self._led and lease is not None and self.saw(lease)[0] != self.identity:
            # Free by now or not: what we believe about the world is older than what somebody else did to it.
            self._ousted = True
            return False
        return await super()._take(lease)

    def _expires_in(self) -> float:
        """Seconds until the holder we last saw may be replaced, by our own clock; never 0, so as not to spin."""
        return max(0.1, self._seen_at + self._seen_duration - self._clock() + 0.02)


def _said(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return metadata.get("annotations") or {}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
