"""What people have ordered in the policy's place, as one server knows it from its routing table."""

from collections.abc import Sequence

from learnloop_api.wire.routing import Override, agent_tag
from learnloop_common.cluster_clock import ClusterClock

CAUTION = ("stop", "fallback", "fixed")
"""Of several that are in force the first kind is obeyed; of one kind the agent's own comes before that for all."""
APART_SECONDS = 5.0
"""How far two servers, and the operator, may be apart in what they take for the API server's clock: an episode that was
opened so shortly after the end of an override counts as touched by it."""


class Overrides:
    """Those of the newest table. They end by the API server's clock, with or without an operator."""

    def __init__(self, clock: ClusterClock | None = None) -> None:
        self._clock = clock or ClusterClock()
        self._ordered: tuple[tuple[str | None, Override], ...] = ()

    def take(self, listed: Sequence[Override]) -> None:
        """Obey these from now on."""
        ranked = sorted(listed, key=lambda one: (CAUTION.index(one.instead), one.agent is None))
        self._ordered = tuple([(None if one.agent is None else agent_tag(one.agent), one) for one in ranked])

    def now(self, tag: str) -> Override | None:
        """What is in force for an agent, by its tag ("": nobody knows which agent it is)."""
        if not self._ordered:
            return None
        moment = self._clock.moment()
        return next((one for its, one in self._ordered if its in (None, tag) and one.in_force(moment)), None)

    def touched(self, tag: str, opened: float) -> bool:
        """Whether an override of the agent was in force at any moment since `opened` (Unix, seconds). Those that are
        listed have begun, whatever a clock says."""
        earliest = opened - APART_SECONDS
        return any(its in (None, tag) and earliest < one.until.timestamp() for its, one in self._ordered)
