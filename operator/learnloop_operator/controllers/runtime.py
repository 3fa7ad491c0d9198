"""One pass over one object: gather, decide, apply. The same for every kind.

Decisions are taken on live reads: `gather` asks the API server (quorum reads, no watch cache), so a pass never sees a
world older than the operator's own last write, and a watch event only says *when* to look, never *what* is there.
"""

from typing import Protocol, TypeVar

from learnloop_operator.adapters.kinds import ResourceKind
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.snapshot import Snapshot

S = TypeVar("S", bound=Snapshot)


class Controller(Protocol[S]):
    """What one kind brings along."""

    @property
    def kind(self) -> ResourceKind:
        """The custom resource this controller looks after; also names its field manager."""

    async def gather(self, namespace: str, name: str) -> S | None:
        """Read the world; None when the object is gone. May raise KubeError: the pass is tried again later."""

    def decide(self, snapshot: S) -> Plan:
        """Pure: the same snapshot always gives the same plan."""

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """What to tell the data plane, best effort, when the object has disappeared."""
