"""One installation to a namespace: a Lease in the namespace itself says whose it is.

Two installations hold two leader Leases and know nothing of each other; both would write the same children, each with
its own images and addresses, and both would decide. So an installation works in a namespace only while it holds the
Lease `learnloop-claim` there. All processes of one installation share the claim: who of them works is the leader
Lease's business. See docs/decisions/0012-one-installation-per-namespace.md.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from learnloop_operator.adapters.kube.client import KubeClient
from learnloop_operator.adapters.kube.errors import KubeError, NotLeading
from learnloop_operator.adapters.kube.kinds import LEASE
from learnloop_operator.adapters.leadership.boot_clock import since_boot
from learnloop_operator.adapters.leadership.leader_lease import Holder
from learnloop_operator.adapters.leadership.sibling_shards import SiblingShards

log = logging.getLogger(__name__)

NAME = "learnloop-claim"
CLAIM_SECONDS = 180.0
FENCE_SECONDS = 100.0
"""A pass begins only so long after the last renewal: it has ended (PASS_SECONDS) before anybody else may begin."""
RENEW_SECONDS = 45.0
CHECK_SECONDS = 5.0


class ClaimedElsewhere(NotLeading):
    """The namespace is another installation's, or nobody can tell: nothing is decided there."""


class NamespaceClaims:
    """The namespaces of one installation, which is known as `installation` (its system namespace and leader Lease).

    Args:
        siblings: the other shards of it, each of which has claims of its own; they hand namespaces over.
    """

    def __init__(
        self,
        kube: KubeClient,
        installation: str,
        *,
        clock: Callable[[], float] = since_boot,
        siblings: SiblingShards | None = None,
    ) -> None:
        self._kube, self.installation, self._clock, self._siblings = kube, installation, clock, siblings
        self._holders: dict[str, Holder] = {}
        self._tried: dict[str, float] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._refused: set[str] = set()
        """Namespaces in which a pass was refused since they were last said to be gained."""

    async def hold(self, namespace: str) -> None:
        """Return when the namespace is ours, taking it where it is free.

        Raises:
            ClaimedElsewhere: it is not; `run` says when that has changed.
        """
        holder = self._holder(namespace)
        async with self._turns.setdefault(namespace, asyncio.Lock()):
            if not holder.held and self._age(namespace) > CHECK_SECONDS:
                await self._try(namespace, holder)
        if not holder.held:
            self._refused.add(namespace)
            raise ClaimedElsewhere(f"namespace {namespace} belongs to {holder.holder or 'nobody we could read'}")

    async def run(self, known: Callable[[], Collection[str]], gained: Callable[[str], None]) -> None:
        """Renew the claims of all namespaces with objects, look for those that become free, give back empty ones."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            wanted = set(known())
            for namespace in sorted(wanted & set(self._holders)):
                await self._look_after(namespace, gained)
            await self.give_back(set(self._holders) - wanted)

    async def give_back(self, namespaces: Collection[str]) -> None:
        """Remove the claims of namespaces that hold none of our objects any more; errors do not matter."""
        for namespace in sorted(namespaces):
            holder = self._holders.pop(namespace)
            self._tried.pop(namespace, None)
            self._turns.pop(namespace, None)
            self._refused.discard(namespace)
            if holder.held:
                try:
                    await self._kube.delete(LEASE.ref(namespace, NAME))
                except KubeError as error:
                    log.warning("the claim on namespace %s was not removed: %s", namespace, error)

    def others(self) -> dict[str, str]:
        """Namespaces we may not work in, and the installation that does."""
        return {
            namespace: holder.holder
            for namespace, holder in sorted(self._holders.items())
            if not holder.held and holder.holder not in ("", self.installation)
        }

    def problem(self) -> str | None:
        """Why this installation does not work everywhere it should; None when it does."""
        # A sibling gives it up within seconds, or dies, and then its claim runs out: nothing for people to mend.
        others = {namespace: holder for namespace, holder in self.others().items() if not self._sibling(holder)}
        unknown = [
            name for name, holder in sorted(self._holders.items()) if not holder.held and name not in self.others()
        ]
        if unknown and not others:
            return f"the Lease {NAME} of namespace {unknown[0]} cannot be taken: see the log, and the rights on leases"
        if not others:
            return None
        said = ", ".join(f"{namespace} is {holder}'s" for namespace, holder in list(others.items())[:5])
        return (
            f"another installation works here: {said} (Lease {NAME} in each); "
            "take these namespaces out of watchNamespaces of one of the two, or uninstall it"
        )

    async def _look_after(self, namespace: str, gained: Callable[[str], None]) -> None:
        holder = self._holder(namespace)
        if not holder.held or self._age(namespace) >= RENEW_SECONDS:
            async with self._turns.setdefault(namespace, asyncio.Lock()):
                await self._try(namespace, holder)
        # Whoever took it, we or a later pass: what was refused before is owed a pass.
        if holder.held and namespace in self._refused:
            self._refused.discard(namespace)
            gained(namespace)

    async def _try(self, namespace: str, holder: Holder) -> None:
        before = holder.holder
        self._tried[namespace] = self._clock()
        if not await holder.attempt() and holder.holder not in (before, self.installation):
            level = logging.INFO if self._sibling(holder.holder) else logging.ERROR
            log.log(level, "namespace %s is the installation %s's: nothing is done there", namespace, holder.holder)

    def _holder(self, namespace: str) -> Holder:
        if namespace not in self._holders:
            self._holders[namespace] = Holder(
                self._kube,
                namespace,
                NAME,
                self.installation,
                lease_seconds=CLAIM_SECONDS,
                fence_seconds=FENCE_SECONDS,
                clock=self._clock,
                vacant=self._siblings.vacant if self._siblings else None,
            )
        return self._holders[namespace]

    def _sibling(self, holder: str) -> bool:
        return self._siblings is not None and self._siblings.known(holder)

    def _age(self, namespace: str) -> float:
        return self._clock() - self._tried.get(namespace, float("-inf"))
