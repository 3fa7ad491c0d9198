"""What a step waits for when its evidence is there: its time, and a person."""

from dataclasses import replace

from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_api.names import ANNOTATION_APPROVE
from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.model.four_eyes import one_pair
from learnloop_operator.core.rollout.model.next_state import NextState
from learnloop_operator.core.rollout.model.order_annotations import OrderAnnotation, unanswered
from learnloop_operator.core.rollout.model.rollout_state import State
from learnloop_operator.core.rollout.model.snapshot import Snapshot
from learnloop_operator.core.times import seconds_since


def wait_for_time_and_people(
    snapshot: Snapshot, state: State, revision: str, step: int, wanted: RolloutStep, at: str
) -> NextState | None:
    """Hold for minSeconds, then for the approval of `revision` where the step pauses; None: nothing to wait for."""
    interval = float(snapshot.spec.analysis.interval_seconds)
    rest = wanted.min_seconds - seconds_since(state.step_started_at, snapshot.now)
    if rest > 0:
        return wait(
            state, reasons.WAITING_FOR_TIME, f"{at}: the step lasts {wanted.min_seconds} s", min(rest, interval), ""
        )
    if wanted.pause and approval(snapshot, state, revision, step) is None:
        text = f"{at}: all checks pass; waiting for the annotation {ANNOTATION_APPROVE}={revision}/{step + 1}"
        return replace(wait(state, reasons.WAITING_FOR_APPROVAL, text, interval, ""), phase="Paused")
    return None


def approval(snapshot: Snapshot, state: State, revision: str, step: int) -> OrderAnnotation | None:
    """`REVISION` passes the next pause only, `REVISION/STEP` exactly that one; a used value counts once."""
    for word in unanswered(snapshot.annotations, state.decisions):
        fits = word.revision == revision and word.step in (None, step + 1)
        if word.verb == "approve" and fits and not word.problem and not one_pair(snapshot, word):
            return word
    return None


def wait(state: State, reason: str, sentence: str, after: float, data: str) -> NextState:
    """Stay where it is. `data`: why evidence is missing, "" when it is complete."""
    return NextState(state, "Progressing", reason, sentence, again_after=after, data=data)
