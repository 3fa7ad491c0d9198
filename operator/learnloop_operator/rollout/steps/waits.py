"""Everything that a step waits for: evidence, time and approval."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from learnloop_api.kinds import base
from learnloop_api.kinds.rollouts import rollout_steps
from learnloop_operator.core.times import duration, parse, rough, seconds_since, stamp
from learnloop_operator.rollout import evidence, reasons
from learnloop_operator.rollout.judging import judgement, watched_arms
from learnloop_operator.rollout.state.orders import OrderAnnotation, one_pair, unanswered
from learnloop_operator.rollout.state.rollout_state import ArmState, NextState, State, happened, wait
from learnloop_operator.rollout.state.snapshot import Snapshot
from learnloop_operator.rollout.steps.rollback import roll_back

_WAITS = (reasons.WAITING_FOR_APPROVAL, reasons.APPROVAL_OVERDUE)


def wait_for_time_and_people(
    snapshot: Snapshot, state: State, canary: ArmState, step: int, wanted: rollout_steps.RolloutStep, at: str
) -> NextState | None:
    """Hold for minSeconds, then for an approval where the step pauses; None: nothing to wait for."""
    interval = float(snapshot.spec.analysis.interval_seconds)
    rest = wanted.min_seconds - seconds_since(state.step_started_at, snapshot.now)
    if rest > 0:
        text = f"{at}: the step lasts {wanted.min_seconds} s"
        return wait(state, reasons.WAITING_FOR_TIME, text, min(rest, interval))
    if wanted.pause and approval(snapshot, state, canary, step) is None:
        text = f"{at}: all checks pass; waiting for `kubectl learnloop approve {snapshot.name}`"
        return wait_for_a_person(snapshot, state, wanted, text)
    return None


def wait_for_a_person(snapshot: Snapshot, state: State, wanted: rollout_steps.RolloutStep, text: str) -> NextState:
    """The pause, while its time lasts; then what spec says."""
    interval, requested = float(snapshot.spec.analysis.interval_seconds), wanted.approval
    waiting = replace(wait(state, reasons.WAITING_FOR_APPROVAL, text, interval), phase="Paused")
    if requested is None:
        return waiting
    limit, since = timedelta(seconds=base.seconds_of(requested.within)), waits_since(snapshot, state)
    left = (since + limit - snapshot.now).total_seconds()
    if left > 0:
        then = "is rolled back" if requested.otherwise == "rollBack" else "stalls"
        words = f"{text}; without it by {stamp(since + limit)} the canary {then}"
        return replace(waiting, sentence=words, again_after=min(interval, left))
    why = f"no approval within {requested.within}"
    if requested.otherwise == "rollBack" and state.canary is not None:
        return roll_back(snapshot, state, state.canary, reasons.APPROVAL_OVERDUE, why)
    sentence = f"{text}; {why}, holding, not rolling back"
    return _as_stalled(snapshot, waiting, reasons.APPROVAL_OVERDUE, sentence)


def _as_stalled(snapshot: Snapshot, holding: NextState, reason: str, sentence: str) -> NextState:
    """The same hold with the condition Stalled, and one event."""
    recorded = any(item.type == "Stalled" and item.reason == reason for item in snapshot.before.conditions)
    events = () if recorded else happened(reason, sentence, warning=True)
    return replace(holding, reason=reason, sentence=sentence, degraded=True, events=events)


def waits_since(snapshot: Snapshot, state: State) -> datetime:
    """When the pause began, as the status has it. What a person has said since then starts it over."""
    paused = next((item for item in snapshot.before.conditions if item.type == reasons.PAUSED), None)
    if paused is None or paused.status != "True" or paused.reason not in _WAITS:
        return snapshot.now
    spoken_at = [parse(decision.at) for decision in state.decisions]
    moments = [parse(paused.last_transition_time), *spoken_at]
    return max((moment for moment in moments if moment is not None), default=snapshot.now)


def approval(snapshot: Snapshot, state: State, canary: ArmState, step: int) -> OrderAnnotation | None:
    """`REVISION` passes the next pause only, `REVISION/STEP` exactly that one; a used value counts once."""
    for order in unanswered(snapshot.annotations, state.decisions):
        fits = order.revision == canary.revision and order.step in (None, step + 1)
        if order.verb == "approve" and fits and not order.problem and not one_pair(snapshot, order):
            return order
    return None


# What a step still waits for before it may be passed, for how long, and since when nothing comes any more.
#
# A rollout without evidence holds: a healthy model is not rolled back for lack of traffic. It must not hold unseen:
# when nothing has come for progressDeadlineSeconds, it is Stalled.


@dataclass(frozen=True, slots=True)
class Wait:
    """The state as it is waiting, why, and the seconds until it is worth another look (None: the usual)."""

    state: State
    missing: evidence.Missing | None
    soon: float | None = None


def evidence_for(
    snapshot: Snapshot,
    state: State,
    canary: ArmState,
    wanted: rollout_steps.RolloutStep,
    verdict: judgement.Judgement,
) -> Wait:
    """Whether this step has its evidence; the first thing that is missing speaks."""
    if snapshot.evidence.unavailable:
        return Wait(state, evidence.Missing(snapshot.evidence.reason, verdict.hold))
    if watched_arms.young(snapshot, state):
        text = f"evidence counts from {watched_arms.SHORTEST:.0f} s after the rollout's start on"
        return Wait(state, evidence.Missing(reasons.NOT_ENOUGH_DATA, text), watched_arms.SHORTEST)
    counted = snapshot.evidence.arms.get(canary.revision)
    problem = evidence.untimely(
        snapshot.evidence.clock, counted.scraped_at if counted else None, snapshot.now, "the canary"
    )
    if problem:
        return Wait(state, problem)
    if counted is None:
        text = f"Prometheus has no series of the canary {canary.revision}: does it scrape the pods of this namespace?"
        return Wait(state, evidence.Missing(reasons.EMPTY_RESULT, text))
    state = watched_arms.settled(state, counted)
    if state.step_base is None:
        return Wait(state, evidence.Missing(reasons.NOT_ENOUGH_DATA, "no sample of this step yet"), watched_arms.SOON)
    finished = judgement.episodes(snapshot, canary.revision) - state.step_base
    if finished < wanted.min_episodes:
        return Wait(
            state, evidence.Missing(reasons.NOT_ENOUGH_DATA, _count(snapshot, state, finished, wanted.min_episodes))
        )
    return Wait(state, evidence.Missing(verdict.hold_reason, verdict.hold) if verdict.hold else None)


def overdue(snapshot: Snapshot, state: State, canary: ArmState, missing: evidence.Missing) -> bool:
    """Whether the step has held for lack of evidence for progressDeadlineSeconds, and none is on its way."""
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    if seconds_since(state.step_started_at, snapshot.now) < deadline or _mute_for(snapshot, missing) < deadline:
        return False
    arm = snapshot.evidence.arms.get(canary.revision)
    if missing.reason == reasons.NOT_ENOUGH_DATA:
        return arm is not None and arm.lately == 0
    recorded = _data_available(snapshot)
    return recorded is not None and recorded.reason == missing.reason


def wait_for_evidence(
    snapshot: Snapshot,
    state: State,
    canary: ArmState,
    missing: evidence.Missing,
    sentence: str,
    soon: float | None = None,
) -> NextState:
    """Hold for what is missing, stalled where none has come for too long."""
    interval = float(snapshot.spec.analysis.interval_seconds)
    holding = wait(state, missing.reason, sentence, min(interval, soon or interval), missing.text)
    return stalled(snapshot, holding) if overdue(snapshot, state, canary, missing) else holding


def stalled_where_mute(snapshot: Snapshot, canary: ArmState, move: NextState) -> NextState:
    """The move, stalled where it is a hold without any number for too long: in shadow, or before a weight is
    raised. Where numbers come and are too few, the step itself tells whether more are on their way."""
    why = move.missing_reason or move.reason
    if not move.missing or move.degraded or move.phase != "Progressing" or why == reasons.NOT_ENOUGH_DATA:
        return move
    missing = evidence.Missing(why, move.missing)
    return stalled(snapshot, move) if overdue(snapshot, move.state, canary, missing) else move


def stalled(snapshot: Snapshot, move: NextState) -> NextState:
    """The hold of a step for which no evidence has come for too long."""
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    sentence = f"{move.sentence}; nothing new for {deadline} s, holding, not rolling back"
    holding = replace(move, missing_reason=move.missing_reason or move.reason)
    return _as_stalled(snapshot, holding, reasons.EVIDENCE_OVERDUE, sentence)


def _mute_for(snapshot: Snapshot, missing: evidence.Missing) -> float:
    """Seconds since the condition DataAvailable was last true, or last known; 0 where it is true now."""
    result = _data_available(snapshot)
    if result is None or result.status == "True" or parse(result.last_transition_time) is None:
        return 0.0
    if (result.status == "Unknown") != (missing.reason in reasons.PROVIDER):
        return 0.0
    return seconds_since(result.last_transition_time, snapshot.now)


def _data_available(snapshot: Snapshot) -> base.Condition | None:
    """The condition as the look before this one left it."""
    return next((item for item in snapshot.before.conditions if item.type == reasons.DATA_AVAILABLE), None)


def _count(snapshot: Snapshot, state: State, finished: int, needed: int) -> str:
    text = f"{finished} of {needed} canary episodes finished, {needed - finished} more needed"
    if snapshot.desired.suspended_agent:
        return f"{text}; LearningAgent {snapshot.desired.suspended_agent} is suspended, its actors play no episodes"
    elapsed = seconds_since(state.step_started_at, snapshot.now)
    if finished <= 0 or elapsed <= 0.0:
        return text
    return f"{text}, about {duration(rough((needed - finished) * elapsed / finished))} at the present rate"
