"""What a step still waits for before it may be passed, for how long, and since when nothing comes any more.

A rollout without evidence holds: a healthy model is not rolled back for lack of traffic. It must not hold unseen:
when nothing has come for progressDeadlineSeconds, it is Stalled.
"""

from dataclasses import dataclass, replace

from learnloop_api.kinds.base import Condition
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core.durations import rough
from learnloop_operator.core.durations import text as duration
from learnloop_operator.core.times import parse, seconds_since
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.sequential_test import bars_of, claim_text, sequential
from learnloop_operator.rollout.evidence.arm_evidence import Missing
from learnloop_operator.rollout.evidence.sample_age import untimely
from learnloop_operator.rollout.judging.analysis import Judgement, episodes, young
from learnloop_operator.rollout.judging.episodes_of_step import SOON, settled
from learnloop_operator.rollout.judging.query_windows import SHORTEST
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.statistics.comparison import Claim, TestMemory, claim


@dataclass(frozen=True, slots=True)
class Wait:
    """The state as it is waiting, why, and the seconds until it is worth another look (None: the usual)."""

    state: State
    missing: Missing | None
    soon: float | None = None


def evidence_for(snapshot: Snapshot, state: State, canary: ArmState, wanted: RolloutStep, verdict: Judgement) -> Wait:
    """Whether this step has its evidence; the first thing that is missing speaks."""
    if snapshot.evidence.unavailable:
        return Wait(state, Missing(snapshot.evidence.reason, verdict.hold))
    if young(snapshot, state):
        text = f"evidence counts from {SHORTEST:.0f} s after the rollout's start on"
        return Wait(state, Missing(reasons.NOT_ENOUGH_DATA, text), SHORTEST)
    seen = snapshot.evidence.arms.get(canary.revision)
    problem = untimely(snapshot.evidence.clock, seen.seen_at if seen else None, snapshot.now, "the canary")
    if problem:
        return Wait(state, problem)
    if seen is None:
        text = f"Prometheus has no series of the canary {canary.revision}: does it scrape the pods of this namespace?"
        return Wait(state, Missing(reasons.EMPTY_RESULT, text))
    state = settled(state, seen)
    if state.step_base is None:
        return Wait(state, Missing(reasons.NOT_ENOUGH_DATA, "no sample of this step yet"), SOON)
    done = episodes(snapshot, canary.revision) - state.step_base
    if done < wanted.min_episodes:
        return Wait(state, Missing(reasons.NOT_ENOUGH_DATA, _count(snapshot, state, done, wanted.min_episodes)))
    if not verdict.hold:
        return Wait(state, None)
    lost = state.weight == 100 and (verdict.of_both or cannot_compare(snapshot, state))
    return Wait(state, Missing(reasons.COMPARISON_LOST if lost else verdict.hold_reason, verdict.hold))


def cannot_compare(snapshot: Snapshot, state: State) -> bool:
    """While stable gets no episodes: those it had are gone, or a test is not finished and nothing can finish it."""
    if state.stable is None or episodes(snapshot, state.stable.revision) == 0:
        return True
    analysis = snapshot.spec.analysis
    bar, proven = bars_of(analysis), {(trial.name, trial.claim): trial.memory for trial in state.trials}
    acting = [metric for metric in sequential(analysis) if not metric.dry_run]
    claims = (claim(proven.get((metric.name, claim_text(metric)), TestMemory()), bar) for metric in acting)
    return any(found is not Claim.FINE for found in claims)


def overdue(snapshot: Snapshot, state: State, canary: ArmState, missing: Missing) -> bool:
    """Whether the step has held for lack of evidence for progressDeadlineSeconds, and none is on its way."""
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    if seconds_since(state.step_started_at, snapshot.now) < deadline or _mute_for(snapshot, missing) < deadline:
        return False
    arm = snapshot.evidence.arms.get(canary.revision)
    if missing.reason == reasons.NOT_ENOUGH_DATA:
        return arm is not None and arm.lately == 0
    known = _data_available(snapshot)
    return known is not None and known.reason == missing.reason


def compared_again(snapshot: Snapshot, state: State, step: int) -> NextState:
    """At 100 % stable plays no more. Three things would end all comparing. Prometheus may have lost stable's episodes
    of this rollout. A test may have changed, or lost its proof on the way up. A ratio may be broken while too little is
    known of stable to be certain. One step back both arms play again."""
    weight = snapshot.spec.rollout.steps[step - 1].weight
    sentence = f"at 100 % stable plays no more and cannot be compared with: back to {weight} %, to compare both arms"
    return NextState(
        replace(state.at_weight(weight, None, snapshot.now), step=step - 1),
        "Progressing",
        reasons.COMPARISON_LOST,
        sentence,
        happened(reasons.COMPARISON_LOST, sentence, warning=True),
        again_after=0.0,
    )


def seen_from_afar(snapshot: Snapshot, canary: ArmState, move: NextState) -> NextState:
    """The move, stalled where it is a hold without any number for too long: in shadow, in an experiment, or before a
    weight is raised. Where numbers come and are too few, the step itself tells whether more are on their way."""
    why = move.data_reason or move.reason
    if not move.data or move.degraded or move.phase != "Progressing" or why == reasons.NOT_ENOUGH_DATA:
        return move
    return stalled(snapshot, move) if overdue(snapshot, move.state, canary, Missing(why, move.data)) else move


def stalled(snapshot: Snapshot, move: NextState) -> NextState:
    """The same hold, visible from afar: condition Stalled, and one event."""
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    sentence = f"{move.sentence}; nothing new for {deadline} s, holding, not rolling back"
    known = any(
        item.type == "Stalled" and item.reason == reasons.EVIDENCE_OVERDUE for item in snapshot.before.conditions
    )
    return replace(
        move,
        reason=reasons.EVIDENCE_OVERDUE,
        data_reason=move.data_reason or move.reason,
        sentence=sentence,
        degraded=True,
        events=() if known else happened(reasons.EVIDENCE_OVERDUE, sentence, warning=True),
    )


def _mute_for(snapshot: Snapshot, missing: Missing) -> float:
    """Seconds since the condition DataAvailable was last true, or last known; 0 where it is true now."""
    found = _data_available(snapshot)
    if found is None or found.status == "True" or parse(found.last_transition_time) is None:
        return 0.0
    if (found.status == "Unknown") != (missing.reason in reasons.PROVIDER):
        return 0.0
    return seconds_since(found.last_transition_time, snapshot.now)


def _data_available(snapshot: Snapshot) -> Condition | None:
    """The condition as the look before this one left it."""
    return next((item for item in snapshot.before.conditions if item.type == reasons.DATA_AVAILABLE), None)


def _count(snapshot: Snapshot, state: State, done: int, needed: int) -> str:
    text = f"{done} of {needed} canary episodes finished, {needed - done} more needed"
    if snapshot.desired.suspended_agent:
        return f"{text}; LearningAgent {snapshot.desired.suspended_agent} is suspended, its actors play no episodes"
    elapsed = seconds_since(state.step_started_at, snapshot.now)
    if done <= 0 or elapsed <= 0.0:
        return text
    return f"{text}, about {duration(rough((needed - done) * elapsed / done))} at the present rate"
