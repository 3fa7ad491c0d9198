"""The result of one look at a rollout: the next state and the sentence why."""

from dataclasses import dataclass

from learnloop_operator.core.plan import Notice
from learnloop_operator.rollout.model.rollout_state import State


@dataclass(frozen=True, slots=True)
class NextState:
    """Where the rollout goes from here."""

    state: State
    phase: str
    reason: str
    sentence: str
    events: tuple[Notice, ...] = ()
    again_after: float | None = None
    """Seconds until the next look even when nothing happens; None: the next event is enough."""
    keep_table: bool = False
    """Do not touch the routing table in this pass: the new state has to be persisted first."""
    degraded: bool = False
    """Something serves worse than it should, or nothing serves at all, and waiting alone will not mend it."""
    data: str | None = None
    """Why evidence is missing; "" when it is complete; None when none is needed."""
    data_reason: str = ""
    """The constant for it where it is not the move's own reason."""


def happened(reason: str, sentence: str, *, warning: bool = False) -> tuple[Notice, ...]:
    """One event."""
    return (Notice("Warning" if warning else "Normal", reason, sentence[:1024]),)
