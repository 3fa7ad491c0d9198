"""Judge an arm by each check of its evidence; since when Prometheus is asked about it, and what counts for a step.

A step counts the episodes that ended in it, not those that were merely seen in it first. Prometheus learns of an
episode when it scrapes next. Whatever ended just before a step began shows up after it, so a step's count starts from a
sample that was taken when the step had begun. What ended between the two counts for neither: the mistake is on the
careful side, and no longer than one scrape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.core import times
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import against_stable_and_error_budget, thresholds, unfinished_episodes
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Verdict, Window, hold, lost
from learnloop_operator.rollout.metrics.metric_types import type_of
from learnloop_operator.rollout.model.experiment_state import ExperimentState
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Judgement:
    """`breach` speaks first; `hold` names the checks without enough data; neither: everything passed."""

    breach: str = ""
    hold: str = ""
    passed: str = ""
    hold_reason: str = reasons.NOT_ENOUGH_DATA
    """Why it holds, if it does: the first reason that is more than a lack of episodes."""
    breach_reason: str = reasons.CHECK_FAILED
    """Why an arm is rolled back, if it is."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """The two revisions being compared, and their display names."""

    candidate: str
    reference: str
    candidate_name: str = "the canary"
    reference_name: str = "stable"
    comparisons: Mapping[str, against_stable_and_error_budget.Comparison] = field(default_factory=dict)
    """Evidence of both arms from the same time, by metric."""
    apart: str = ""
    """Why the two are not compared now: ratios neither break nor hold."""
    finished: bool = False
    """Whether their comparison is over: what has to be proven was proven by then."""
    guarded: bool = False
    """Whether the candidate was promoted."""


def observed(snapshot: Snapshot, state: State, canary: ArmState) -> State:
    """The state after its comparisons have taken this look. They compare while both arms get episodes only."""
    if snapshot.evidence.unavailable or state.stable is None or young(snapshot, state):
        return state
    concurrent = 0 < state.weight < 100 and is_steady(snapshot, state, canary.revision)
    pair = canary.revision, state.stable.revision
    analysis = snapshot.spec.analysis
    after = against_stable_and_error_budget.compared(
        analysis, state.comparisons, snapshot.evidence, *pair, concurrent=concurrent
    )
    return state if after == state.comparisons else replace(state, comparisons=after)


def is_steady(snapshot: Snapshot, state: State, *revisions: str) -> bool:
    """Whether the endings of these arms can be compared with stable's, at the shares that all have now."""
    arms = snapshot.evidence.arms
    reference = arms.get(state.stable.revision) if state.stable else None
    deadline = snapshot.spec.analysis.episode_deadline_seconds
    return unfinished_episodes.steady(map(arms.get, revisions), reference, state.shares_since(), snapshot.now, deadline)


def judge_canary(snapshot: Snapshot, state: State, canary: ArmState, stable: ArmState) -> Judgement:
    """Weigh the canary against stable by every check of spec.analysis."""
    apart = "stable receives no more episodes; it was within the bar until then" if state.weight == 100 else ""
    earlier = snapshot.spec.rollout.steps[: state.step or 0]
    together = any(0 < step.weight < 100 for step in earlier)
    if apart and not together:
        apart = "no step lets both arms play at the same time"
    comparisons = against_stable_and_error_budget.current(snapshot.spec.analysis, state.comparisons)
    finished = state.weight == 100 and together
    pairing = Pairing(canary.revision, stable.revision, comparisons=comparisons, apart=apart, finished=finished)
    return _judge(snapshot, state, pairing)


def judge_promoted(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> Judgement:
    """Weigh a promoted arm against what the old one has left behind."""
    return _judge(snapshot, state, _promoted_pairing(new, old))


def promoted_may_hang(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> str | None:
    """A sentence while open episodes of a promoted arm may yet be overdue."""
    arms, seconds = snapshot.evidence.arms, times.seconds_since(state.promoted_at, snapshot.now)
    return unfinished_episodes.may_hang(snapshot.spec.analysis, arms.get(new.revision), arms.get(old.revision), seconds)


def _promoted_pairing(new: ArmState, old: ArmState) -> Pairing:
    return Pairing(
        new.revision,
        old.revision,
        "the promoted arm",
        "the old arm",
        apart="the old arm receives no more episodes",
        guarded=True,
    )


def _judge(snapshot: Snapshot, state: State, pairing: Pairing) -> Judgement:
    """Combines all checks."""
    evidence = snapshot.evidence
    if evidence.unavailable:
        return Judgement(hold=f"no evidence: {evidence.unavailable}", hold_reason=evidence.reason)
    alpha = against_stable_and_error_budget.alpha_of_bound(snapshot.spec.analysis)
    checks = [_check(snapshot, state, metric, pairing, alpha) for metric in snapshot.spec.analysis.metrics]
    if result := _unfinished(snapshot, state, pairing):
        checks.append(result)
    broken = [item for item in checks if item.verdict is Verdict.BREACH]
    held = [item for item in checks if item.verdict is Verdict.HOLD]
    passed = [item for item in checks if item.verdict is Verdict.PASS]
    why = [item.reason for item in held if item.reason != reasons.NOT_ENOUGH_DATA]
    outside = bool(broken) and broken[0].reason == reasons.OUT_OF_RANGE
    return Judgement(
        breach="; ".join([item.sentence for item in broken]),
        hold="; ".join([item.sentence for item in held]),
        passed="; ".join([item.sentence for item in passed]),
        hold_reason=why[0] if why else reasons.NOT_ENOUGH_DATA,
        breach_reason=reasons.OUT_OF_RANGE if outside else reasons.CHECK_FAILED,
    )


def _unfinished(snapshot: Snapshot, state: State, pairing: Pairing) -> Check | None:
    """Judges opened episodes; a guard has its own rule of what it may end with."""
    arms = snapshot.evidence.arms
    candidate, reference = arms.get(pairing.candidate), arms.get(pairing.reference)
    called = pairing.candidate_name, pairing.reference_name
    passing = None if pairing.guarded else times.seconds_since(state.step_started_at, snapshot.now)
    scraped_at = (candidate and candidate.scraped_at) or snapshot.now
    stale = max(0.0, (snapshot.now - scraped_at).total_seconds())
    return unfinished_episodes.unfinished(snapshot.spec.analysis, candidate, reference, *called, passing, stale)


def _check(snapshot: Snapshot, state: State, metric: MetricThreshold, pairing: Pairing, alpha: float) -> Check:
    """Bounds first, those of sequential metrics among them; what passes these is tested. `alpha`: each bound's."""
    arms, comparison = snapshot.evidence.arms, pairing.comparisons.get(metric.name)
    candidate, reference = arms.get(pairing.candidate), arms.get(pairing.reference)
    called = {"candidate_name": pairing.candidate_name, "reference_name": pairing.reference_name}
    plain = thresholds.check(metric, candidate, reference, alpha, comparison, pairing.apart, **called)
    if plain.verdict is not Verdict.PASS:
        return plain
    played = comparison.memory.judged.canary.n if comparison else 0.0
    if pairing.finished and against_stable_and_error_budget.question_of(metric) and played < metric.min_episodes:
        text = f"{metric.name}: {played:.0f} of {metric.min_episodes} episodes were compared before stable had no more"
        return hold(f"{text}; `kubectl learnloop restart` compares again", reasons.NO_END_IN_SIGHT)
    if metric.test != "sequential":
        return plain
    if pairing.guarded:
        # What befalls the promoted arm alone proves nothing against it, and what was proven of it stands.
        return replace(plain, sentence=f"{plain.sentence}, not comparable: {pairing.apart}")
    if not pairing.finished and (torn := lost(reference.gap if reference else 0, "stable")):
        return hold(f"{metric.name}: {torn.text}", torn.reason)
    if comparison is None or not comparison.begun:
        return hold(f"{metric.name}: no look at both arms yet")
    counted = type_of(metric).outcomes(metric, reference, comparison.measure) if reference else None
    if not pairing.finished and counted is None:
        return hold(f"{metric.name}: no number for stable at this look, the test waits", reasons.EMPTY_RESULT)
    per_second = episode_rate(snapshot, state, pairing.candidate)
    return against_stable_and_error_budget.weigh(
        metric, comparison, snapshot.spec.analysis, state.weight / 100.0, per_second
    )


def episode_rate(snapshot: Snapshot, state: State, revision: str) -> float:
    """Episodes that the arm finishes a second; 0 where nothing is known and while the agent that plays is suspended."""
    elapsed = times.seconds_since(state.rollout_started_at, snapshot.now)
    idle = bool(snapshot.desired.suspended_agent) or elapsed <= 0.0
    return 0.0 if idle else episodes(snapshot, revision) / elapsed


def episodes(snapshot: Snapshot, revision: str) -> int:
    """Finished episodes of the arm in its window; 0 where nothing is known."""
    arm = snapshot.evidence.arms.get(revision)
    return arm.episodes if arm else 0


SHORTEST = 15.0
"""Seconds: `increase` needs two scrapes inside the window."""
STAMP = timedelta(seconds=1)
"""A step's beginning is on record in whole seconds, rounded down."""
SOON = 1.0
"""Seconds until the next look while a step waits for its first sample."""


def begun(state: State) -> int | None:
    """The base of a step that begins now; None where it has to be taken from a later sample. A canary that never had
    a weight has no episodes that could still show up."""
    return state.step_base if state.weight == 0 else None


def settled(state: State, canary: ArmEvidence | None) -> State:
    """The state with the step's base, as soon as every pod was scraped in this step. A count that shrank (pods that
    left) takes the base along; an older sample, of the other one of two Prometheus servers, does not."""
    total = canary.episodes if canary else 0
    if state.step_base is not None and state.step_base <= total:
        return state
    began = times.parse(state.step_started_at)
    if began is not None and (canary is None or canary.scraped_at is None or canary.scraped_at < began + STAMP):
        return state
    return replace(state, step_base=total)


def windows(snapshot: Snapshot, state: State) -> tuple[Window, ...]:
    """While a canary is out both arms are compared over the whole rollout: at 100 % stable has no fresh episodes left.
    A guarded arm is watched since its promotion, against the old arm's figures of the rollout. An arm in shadow plays
    no episodes."""
    if shadow_window(snapshot, state) is not None:
        return ()
    if state.stable and not state.canary and state.experiment and state.experiment.running:
        return _of_experiment(snapshot, state.stable.revision, state.experiment)
    since_rollout = _seconds(state.rollout_started_at, snapshot)
    if state.stable and state.canary:
        # Asked before the first weight too: without a source of evidence the canary gets no episode.
        return Window(state.canary.revision, since_rollout), Window(state.stable.revision, since_rollout)
    if state.stable and state.previous:
        return (
            Window(state.stable.revision, _seconds(state.promoted_at, snapshot)),
            Window(state.previous.revision, since_rollout),
        )
    return ()


def young(snapshot: Snapshot, state: State) -> bool:
    """For its first seconds Prometheus' window also covers an earlier rollout of this revision, which may have failed:
    only the fast lane may roll back then."""
    return times.seconds_since(state.rollout_started_at, snapshot.now) < SHORTEST


def _of_experiment(snapshot: Snapshot, stable: str, trial: ExperimentState) -> tuple[Window, ...]:
    """All arms since they began to play."""
    if trial.phase == "Starting":
        return ()
    seconds = _seconds(trial.started_at, snapshot)
    revisions = (stable, *(player.model.revision for player in trial.challengers()))
    return tuple(Window(revision, seconds) for revision in revisions)


def shadow_window(snapshot: Snapshot, state: State) -> Window | None:
    """While a canary is in shadow: its copies since the step began."""
    if state.canary is None or state.step is None or state.weight:
        return None
    if snapshot.spec.rollout.steps[state.step].shadow is None:
        return None
    return Window(state.canary.revision, _seconds(state.step_started_at, snapshot))


def _seconds(since: str | None, snapshot: Snapshot) -> int:
    return int(max(SHORTEST, times.seconds_since(since, snapshot.now)))
