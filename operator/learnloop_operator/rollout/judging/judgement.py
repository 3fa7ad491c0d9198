"""Judge an arm by each check of its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.core import times
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import (
    against_stable,
    error_budget,
    metric_types,
    thresholds,
    unfinished_episodes,
)
from learnloop_operator.rollout.evidence import Check, Verdict, hold, lost
from learnloop_operator.rollout.judging import watched_arms
from learnloop_operator.rollout.state.rollout_state import ArmState, State
from learnloop_operator.rollout.state.snapshot import Snapshot


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
    comparisons: Mapping[str, against_stable.Comparison] = field(default_factory=dict)
    """Evidence of both arms from the same time, by metric."""
    apart: str = ""
    """Why the two are not compared now: ratios neither break nor hold."""
    finished: bool = False
    """Whether their comparison is over: what has to be proven was proven by then."""
    guarded: bool = False
    """Whether the candidate was promoted."""


def with_comparisons(snapshot: Snapshot, state: State, canary: ArmState) -> State:
    """The state after its comparisons have taken this look. They compare while both arms get episodes only."""
    if snapshot.evidence.unavailable or state.stable is None or watched_arms.young(snapshot, state):
        return state
    concurrent = 0 < state.weight < 100 and is_steady(snapshot, state, canary.revision)
    pair = canary.revision, state.stable.revision
    analysis = snapshot.spec.analysis
    after = against_stable.compared(analysis, state.comparisons, snapshot.evidence, *pair, concurrent=concurrent)
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
    comparisons = against_stable.current(snapshot.spec.analysis, state.comparisons)
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
    alpha = error_budget.alpha_of_bound(snapshot.spec.analysis)
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
    if pairing.finished and against_stable.question_of(metric) and played < metric.min_episodes:
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
    counted = metric_types.type_of(metric).outcomes(metric, reference, comparison.measure) if reference else None
    if not pairing.finished and counted is None:
        return hold(f"{metric.name}: no number for stable at this look, the test waits", reasons.EMPTY_RESULT)
    per_second = episode_rate(snapshot, state, pairing.candidate)
    return against_stable.weigh(metric, comparison, snapshot.spec.analysis, state.weight / 100.0, per_second)


def episode_rate(snapshot: Snapshot, state: State, revision: str) -> float:
    """Episodes that the arm finishes a second; 0 where nothing is known and while the agent that plays is suspended."""
    elapsed = times.seconds_since(state.rollout_started_at, snapshot.now)
    idle = bool(snapshot.desired.suspended_agent) or elapsed <= 0.0
    return 0.0 if idle else episodes(snapshot, revision) / elapsed


def episodes(snapshot: Snapshot, revision: str) -> int:
    """Finished episodes of the arm in its window; 0 where nothing is known."""
    arm = snapshot.evidence.arms.get(revision)
    return arm.episodes if arm else 0
