"""What a step waits for when its evidence is there: its time, and a person."""

from dataclasses import replace
from datetime import datetime, timedelta

from learnloop_api.kinds.rollouts.gates import seconds_of
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core.times import parse, seconds_since, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.model.four_eyes import one_pair
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.order_annotations import OrderAnnotation, unanswered
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.steps.rollback import roll_back

_WAITS = (reasons.WAITING_FOR_APPROVAL, reasons.APPROVAL_OVERDUE)


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
        text = f"{at}: all checks pass; waiting for `kubectl learnloop approve {snapshot.name}{_arm(state, revision)}`"
        return wait_for_a_person(snapshot, state, wanted, text)
    return None


def _arm(state: State, revision: str) -> str:
    """The option that names an arm which is not the canary."""
    if state.experiment is None or (state.canary and state.canary.revision == revision):
        return ""
    named = (player.name for player in state.experiment.challengers() if player.model.revision == revision)
    return next((f" --arm {name}" for name in named), "")


def wait_for_a_person(snapshot: Snapshot, state: State, wanted: RolloutStep, text: str) -> NextState:
    """The pause, while its time lasts; then what spec says."""
    interval, asked = float(snapshot.spec.analysis.interval_seconds), wanted.approval
    waiting = replace(wait(state, reasons.WAITING_FOR_APPROVAL, text, interval, ""), phase="Paused")
    if asked is None:
        return waiting
    limit, since = timedelta(seconds=seconds_of(asked.within)), waits_since(snapshot, state)
    left = (since + limit - snapshot.now).total_seconds()
    if left > 0:
        then = "is rolled back" if asked.otherwise == "rollBack" else "stalls"
        said = f"{text}; without it by {stamp(since + limit)} the canary {then}"
        return replace(waiting, sentence=said, again_after=min(interval, left))
    why = f"nobody has approved within {asked.within}"
    if asked.otherwise == "rollBack" and state.canary is not None:
        return roll_back(snapshot, state, state.canary, reasons.APPROVAL_OVERDUE, why)
    sentence = f"{text}; {why}, holding, not rolling back"
    known = any(
        item.type == "Stalled" and item.reason == reasons.APPROVAL_OVERDUE for item in snapshot.before.conditions
    )
    return replace(
        waiting,
        reason=reasons.APPROVAL_OVERDUE,
        sentence=sentence,
        degraded=True,
        events=() if known else happened(reasons.APPROVAL_OVERDUE, sentence, warning=True),
    )


def waits_since(snapshot: Snapshot, state: State) -> datetime:
    """When the pause began, as the status has it. What a person has said since then begins it anew."""
    paused = next((item for item in snapshot.before.conditions if item.type == reasons.PAUSED), None)
    if paused is None or paused.status != "True" or paused.reason not in _WAITS:
        return snapshot.now
    said = [parse(decision.at) for decision in state.decisions]
    moments = [parse(paused.last_transition_time), *said]
    return max((moment for moment in moments if moment is not None), default=snapshot.now)


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
