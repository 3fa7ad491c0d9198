"""Leader election on a coordination.k8s.io Lease, by the rules and times of client-go's leaderelection.

A standby takes over when it has seen no renewal for the whole lease duration *by its own clock*; clocks of different
machines are never compared. Each write of the Lease carries the resourceVersion it is based on, so one of two
candidates wins. A leader that cannot renew before its deadline ends. Its late writes are refused by the API server,
because every status, child and deletion carries a precondition: docs/decisions/0028-lease-fenced-writes.md.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.kube import errors, fenced_client, kinds

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
DEADLINE_SECONDS = 10.0
"""A leader acts for this long after the request of its last successful renewal."""
RETRY_SECONDS = 2.0
"""Between two attempts to acquire or renew."""


class Leadership:
    """Competes for the Lease `name`; `held` says whether this process may write.

    `kube` must be a client without a guard: the guard of the others rests on this Lease.
    """

    def __init__(
        self,
        kube: fenced_client.KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._namespace, self._name, self._clock = kube, namespace, name, clock
        self.identity = f"{identity}_{uuid.uuid4().hex[:8]}"
        self.answered, self.acquired = asyncio.Event(), asyncio.Event()
        self._held_until = float("-inf")
        self._observed = ("", "")
        """Holder and renewTime, as last seen."""
        self._observed_at = 0.0
        self._duration = LEASE_SECONDS

    @property
    def held(self) -> bool:
        return self._clock() < self._held_until

    def guard(self) -> None:
        if not self.held:
            raise errors.NotLeading("this process does not hold the Lease: it writes nothing")

    async def run(self) -> None:
        """Acquire, then renew; returns when the Lease is lost."""
        while True:
            if await self.attempt():
                break
            await asyncio.sleep(RETRY_SECONDS)
        log.info("leading as %s", self.identity)
        self.acquired.set()
        while self.held:
            await asyncio.sleep(RETRY_SECONDS)
            await self.attempt()
        log.error("lost the Lease %s/%s", self._namespace, self._name)

    async def attempt(self) -> bool:
        """Acquire or renew. False when another process holds the Lease or the API server does not answer."""
        started = self._clock()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                won = await self._try()
            self.answered.set()
        except errors.Conflict:
            return False  # another process wrote in between: the next attempt reads what
        except (errors.KubeError, TimeoutError) as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error or "timeout")
            return False
        self._held_until = started + DEADLINE_SECONDS if won else float("-inf")
        return won

    async def release(self) -> None:
        """Let a standby take over immediately. An error is harmless: the Lease expires."""
        held, self._held_until = self.held, float("-inf")
        if not held:
            return
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                lease = await self._kube.get(kinds.LEASE, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self.identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                    await self._kube.replace(lease)
        except (errors.KubeError, TimeoutError) as error:
            log.warning("the Lease was not released: %s", error or "timeout")

    async def _try(self) -> bool:
        try:
            lease = await self._kube.get(kinds.LEASE, self._namespace, self._name)
        except errors.NotFound:
            metadata = {"name": self._name, "namespace": self._namespace}
            manifest = {"apiVersion": kinds.LEASE.api_version, "kind": kinds.LEASE.kind, "metadata": metadata}
            await self._kube.create({**manifest, "spec": self._spec({})})
            return True
        self._observe(lease)
        silent = self._clock() - self._observed_at
        if self._observed[0] not in ("", self.identity) and silent < self._duration:
            return False
        if self.acquired.is_set() and self._observed[0] != self.identity:
            return False  # another process has led since: this one decided on an older snapshot
        await self._kube.replace({**lease, "spec": self._spec(lease.get("spec") or {})})
        return True

    def _observe(self, lease: Mapping[str, Any]) -> None:
        spec = lease.get("spec") or {}
        observed = (str(spec.get("holderIdentity") or ""), str(spec.get("renewTime")))
        if observed != self._observed:
            self._observed, self._observed_at = observed, self._clock()
        self._duration = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _spec(self, before: Mapping[str, Any]) -> dict[str, Any]:
        ours, now = before.get("holderIdentity") == self.identity, _now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if ours else now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if ours or not before else 1),
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
