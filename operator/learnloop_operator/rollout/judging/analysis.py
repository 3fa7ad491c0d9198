"""All checks of the analysis together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import paired_outcomes
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes, has_ratio
from learnloop_operator.rollout.checks.sequential_test import alpha_of_bound, claim_text, looked, weigh
from learnloop_operator.rollout.checks.thresholds import Comparison, check, out_of_range
from learnloop_operator.rollout.checks.unfinished_episodes import steady, unfinished
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Verdict, hold, lost
from learnloop_operator.rollout.judging.arms import SHORTEST
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.rollout.metrics.metric_type import PLAIN
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.statistics.betting import NONE
from learnloop_operator.statistics.comparison import Pair

Tested = Callable[[MetricThreshold, Check], Check]


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
    of_both: bool = False
    """Whether a check holds until both arms have had more episodes."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """The two revisions being compared, and their display names."""

    subject: str
    reference: str
    subject_is: str = "the canary"
    reference_is: str = "stable"
    trials: Mapping[str, PairedOutcomes] = field(default_factory=dict)
    """What ratios have compared at the same time, by metric."""
    now: bool = True
    """Whether both arms get episodes."""
    apart: str = ""
    """Why they are not, and never were, compared at the same time."""
    guarded: bool = False
    """Whether the subject was promoted."""


def observed(snapshot: Snapshot, state: State, canary: ArmState) -> State:
    """The state after its tests and ratios have taken this look. They compare while both arms get episodes only."""
    if snapshot.evidence.unavailable or state.stable is None or young(snapshot, state):
        return state
    even = is_steady(snapshot, state, canary.revision)
    trials = looked(
        snapshot.spec.analysis,
        state.trials,
        snapshot.evidence,
        canary.revision,
        state.stable.revision,
        concurrent=0 < state.weight < 100 and even,
    )
    after = state if trials == state.trials else replace(state, trials=trials)
    pair = canary.revision, state.stable.revision
    ratios = paired_outcomes.looked(
        snapshot.spec.analysis, state.ratios, snapshot.evidence, *pair, state.weight, steady=even
    )
    return after if ratios == state.ratios else replace(after, ratios=ratios)


def is_steady(snapshot: Snapshot, state: State, *revisions: str) -> bool:
    """Whether the endings of these arms can be compared with stable's, at the shares that all have now."""
    arms = snapshot.evidence.arms
    reference = arms.get(state.stable.revision) if state.stable else None
    deadline = snapshot.spec.analysis.episode_deadline_seconds
    return steady(map(arms.get, revisions), reference, state.shares_since(), snapshot.now, deadline)


def young(snapshot: Snapshot, state: State) -> bool:
    """The shortest window reaches back before the rollout, where the same revision may have failed once already."""
    return seconds_since(state.rollout_started_at, snapshot.now) < SHORTEST


def judge_canary(snapshot: Snapshot, state: State, canary: ArmState, stable: ArmState) -> Judgement:
    """Weigh the canary against stable by every check of spec.analysis."""
    return _judge(
        snapshot, _canary_pairing(snapshot, state, canary, stable), _against_stable(snapshot, state, canary, stable)
    )


def judge_promoted(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> Judgement:
    """Weigh a promoted arm against what the old one has left behind."""
    return _judge(snapshot, _promoted_pairing(new, old), _against_old(snapshot, new, old))


def _canary_pairing(snapshot: Snapshot, state: State, canary: ArmState, stable: ArmState) -> Pairing:
    earlier = snapshot.spec.rollout.steps[: state.step or 0]
    alone = state.weight == 100 and not any(0 < step.weight < 100 for step in earlier)
    return Pairing(
        canary.revision,
        stable.revision,
        trials=paired_outcomes.known(snapshot.spec.analysis, state.ratios),
        now=state.weight < 100,
        apart="no step lets both arms play at the same time" if alone else "",
    )


def _promoted_pairing(new: ArmState, old: ArmState) -> Pairing:
    return Pairing(
        new.revision,
        old.revision,
        "the promoted arm",
        "the old arm",
        now=False,
        apart="the old arm plays no more",
        guarded=True,
    )


def _against_stable(snapshot: Snapshot, state: State, canary: ArmState, stable: ArmState) -> Tested:
    analysis, trials = snapshot.spec.analysis, {(trial.name, trial.claim): trial for trial in state.trials}

    def tested(metric: MetricThreshold, plain: Check) -> Check:
        result = trials.get((metric.name, claim_text(metric)))
        if plain.verdict is not Verdict.PASS:
            return plain
        own, counted = snapshot.evidence.arms.get(canary.revision), snapshot.evidence.arms.get(stable.revision)
        stray = _outside(metric, own, counted, result.memory.seen if result else None)
        if stray:
            return stray
        if torn := lost(counted.gap if counted else 0, "stable"):
            return hold(f"{metric.name}: {torn.text}", torn.reason)
        if result is None or not result.begun:
            return hold(f"{metric.name}: no look at both arms yet")
        if counted is None or type_of(metric).outcomes(metric, counted, result.measure) is None:
            text = f"{metric.name}: no number for stable at this look, what is known waits"
            return hold(text, reasons.EMPTY_RESULT)
        return weigh(metric, result, analysis, state.weight / 100.0, episode_rate(snapshot, state, canary.revision))

    return tested


def _against_old(snapshot: Snapshot, new: ArmState, old: ArmState) -> Tested:
    """The old arm plays no more: what the world does to the promoted one alone proves nothing against it, and what
    was proven of it next to the old one stands."""

    def tested(metric: MetricThreshold, plain: Check) -> Check:
        if plain.verdict is not Verdict.PASS:
            return plain
        own, counted = snapshot.evidence.arms.get(new.revision), snapshot.evidence.arms.get(old.revision)
        stray = _outside(metric, own, counted, None, "the promoted arm", "the old arm")
        if stray:
            return stray
        return replace(plain, sentence=f"{plain.sentence}, not comparable: the old arm plays no more")

    return tested


def _outside(
    metric: MetricThreshold,
    subject: ArmEvidence | None,
    reference: ArmEvidence | None,
    taken: Pair | None,
    subject_is: str = "the canary",
    reference_is: str = "stable",
) -> Check | None:
    """Judges returns outside their range; other metrics have none."""
    if metric.return_range is None:
        return None
    result = (type_of(metric).outcomes(metric, arm, PLAIN) if arm else None for arm in (subject, reference))
    both = Pair(*(outcomes or NONE for outcomes in result))
    return out_of_range(metric, both, taken, subject_is, reference_is)


def _judge(snapshot: Snapshot, pairing: Pairing, tested: Tested) -> Judgement:
    """Combines all checks."""
    evidence = snapshot.evidence
    if evidence.unavailable:
        return Judgement(hold=f"no evidence: {evidence.unavailable}", hold_reason=evidence.reason)
    alpha = alpha_of_bound(snapshot.spec.analysis)
    checks = [_check(snapshot, metric, pairing, tested, alpha) for metric in snapshot.spec.analysis.metrics]
    if result := _unfinished(snapshot, pairing):
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
        of_both=any([item.of_both for item in held]),
        breach_reason=reasons.OUT_OF_RANGE if outside else reasons.CHECK_FAILED,
    )


def _unfinished(snapshot: Snapshot, pairing: Pairing) -> Check | None:
    """Judges opened episodes; a guard ends by its time, even with open episodes."""
    arms = snapshot.evidence.arms
    subject, reference = arms.get(pairing.subject), arms.get(pairing.reference)
    called = pairing.subject_is, pairing.reference_is
    return unfinished(snapshot.spec.analysis, subject, reference, *called, passing=not pairing.guarded)


def _check(snapshot: Snapshot, metric: MetricThreshold, pairing: Pairing, tested: Tested, alpha: float) -> Check:
    """Bounds first, those of sequential metrics among them; what passes these is `tested`. `alpha`: each bound's."""
    arms = snapshot.evidence.arms
    subject, reference = arms.get(pairing.subject), arms.get(pairing.reference)
    plain = check(
        metric,
        subject,
        reference,
        alpha,
        _comparison(metric, pairing),
        subject_is=pairing.subject_is,
        reference_is=pairing.reference_is,
    )
    if metric.test == "sequential":
        return tested(metric, plain)
    return plain if plain.verdict is Verdict.BREACH else _stray(metric, pairing, subject, reference) or plain


def _comparison(metric: MetricThreshold, pairing: Pairing) -> Comparison:
    """Evidence of a ratio. A comparison over the whole rollout runs while both arms get episodes."""
    trial, apart, kind = pairing.trials.get(metric.name), pairing.apart, type_of(metric)
    was = kind.of_whole_rollout and trial is not None and trial.compared >= metric.min_episodes
    if not pairing.now and not apart and (was or not kind.is_counted(metric)):
        apart = "stable plays no more, it was within the bar while it did"
    return Comparison(trial, apart)


def _stray(
    metric: MetricThreshold, pairing: Pairing, subject: ArmEvidence | None, reference: ArmEvidence | None
) -> Check | None:
    """A ratio of returns that leave their range: such a batch proves nothing, and what was compared before it must not
    speak for the arm."""
    if pairing.apart or not has_ratio(metric):
        return None
    trial = pairing.trials.get(metric.name)
    taken = Pair(*trial.seen[0]) if trial and trial.seen else None
    return _outside(metric, subject, reference, taken, pairing.subject_is, pairing.reference_is)


def episode_rate(snapshot: Snapshot, state: State, revision: str) -> float:
    """Episodes that the arm finishes a second; 0 where nothing is known and while the agent that plays is suspended."""
    elapsed = seconds_since(state.rollout_started_at, snapshot.now)
    idle = bool(snapshot.desired.suspended_agent) or elapsed <= 0.0
    return 0.0 if idle else episodes(snapshot, revision) / elapsed


def episodes(snapshot: Snapshot, revision: str) -> int:
    """Finished episodes of the arm in its window; 0 where nothing is known."""
    arm = snapshot.evidence.arms.get(revision)
    return arm.episodes if arm else 0
