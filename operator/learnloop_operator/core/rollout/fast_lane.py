"""What the fast lane adds to a decision: whom it watches, the breach it has found, the condition that tells of it."""

from dataclasses import dataclass
from typing import Any

from learnloop_api.names import PORT_SERVING
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition
from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.capacity import ready
from learnloop_operator.core.rollout.direct import FRESH, UNREACHABLE, UNUSABLE
from learnloop_operator.core.rollout.gross import breach
from learnloop_operator.core.rollout.state import Arm, State
from learnloop_operator.core.rollout.world import Snapshot

READING, DISABLED, NOT_NEEDED = "Reading", "Disabled", "NotNeeded"
_ALONE = "Prometheus alone takes a bad canary back"
_SENTENCES = {
    UNREACHABLE: (
        f"pods of the arm on trial do not answer the operator on port {PORT_SERVING}: let it through, if a "
        f"NetworkPolicy keeps it out; {_ALONE}"
    ),
    UNUSABLE: f"pods of the arm on trial answer without the counters of their revision: is their image older? {_ALONE}",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The arm to read, the rollout it is on trial in, and the percent of new episodes it gets."""

    revision: str
    rollout: str
    weight: int


def subject(snapshot: Snapshot, state: State) -> Subject | None:
    """The canary once it has pods, or the promoted arm under guard; None where nothing may be taken back."""
    if not snapshot.spec.analysis.fast_lane.enabled or snapshot.spec.suspend:
        return None
    if state.stable is None or state.rollout_started_at is None:
        return None
    if state.canary and (state.step is not None or ready(snapshot, state.canary.revision)):
        return Subject(state.canary.revision, state.rollout_started_at, state.weight)
    if state.previous and not state.canary:
        return Subject(state.stable.revision, state.rollout_started_at, 100)
    return None


def gross_breach(snapshot: Snapshot, state: State, arm: Arm, subject_is: str) -> str:
    """Which hard bounds the arm's own counters break beyond doubt, in one sentence; "" for none, and for old news."""
    direct, asked = snapshot.direct, subject(snapshot, state)
    if direct is None or asked is None or direct.seen_at is None or abs(snapshot.now - direct.seen_at) > FRESH:
        return ""
    if not direct.revision == asked.revision == arm.revision or direct.rollout != asked.rollout:
        return ""
    return breach(snapshot.spec.analysis, direct.alarms, subject_is)


def breached(snapshot: Snapshot, state: State) -> bool:
    """Whether `decide` will take the arm on trial back for what its own counters say: nothing else need be asked."""
    arm = state.canary or state.stable
    return arm is not None and bool(gross_breach(snapshot, state, arm, "the arm"))


def condition_of(snapshot: Snapshot) -> dict[str, Any]:
    """FastLane: True while the pods are read, False where Prometheus has to do alone, Unknown with nothing on trial."""
    name, generation, direct = reasons.FAST_LANE, snapshot.generation, snapshot.direct
    if not snapshot.spec.analysis.fast_lane.enabled:
        said = f"spec.analysis.fastLane.enabled is false: {_ALONE}"
        return condition(name, FALSE, DISABLED, said, generation)
    if direct is None:
        return condition(name, UNKNOWN, NOT_NEEDED, "no arm is on trial", generation)
    if problem := direct.health.problem:
        return condition(name, FALSE, problem, _SENTENCES[problem], generation)
    return condition(name, TRUE, READING, "the pods of the arm on trial are read each second", generation)
