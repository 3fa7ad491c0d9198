"""All checks of the analysis at once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import paired_outcomes
from learnloop_operator.rollout.checks.anchor import Figures, against_anchor, taken
from learnloop_operator.rollout.checks.dry_run_metrics import bounds_text, report
from learnloop_operator.rollout.checks.error_budget import alpha_of_bound
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes, has_ratio
from learnloop_operator.rollout.checks.return_drift import drift
from learnloop_operator.rollout.checks.returns_out_of_range import out_of_range
from learnloop_operator.rollout.checks.sequential_test import bars_of, claim_text, looked
from learnloop_operator.rollout.checks.sequential_verdict import weigh
from learnloop_operator.rollout.checks.steady_endings import steady
from learnloop_operator.rollout.checks.thresholds import Comparison, check
from learnloop_operator.rollout.checks.unfinished_episodes import unfinished
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, Check, Verdict, hold, lost
from learnloop_operator.rollout.judging.query_windows import SHORTEST, at_first_weight
from learnloop_operator.rollout.metrics.metric_type import PLAIN
from learnloop_operator.rollout.metrics.registry import type_of
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
    """Whom the checks compare: revisions, and what to call them."""

    subject: str
    reference: str
    subject_is: str = "the canary"
    reference_is: str = "stable"
    first_step: bool = False
    trials: Mapping[str, PairedOutcomes] = field(default_factory=dict)
    """What ratios have compared at the same time, by metric."""
    now: bool = True
    """Whether both arms get episodes."""
    apart: str = ""
    """Why they are not, and never were, compared at the same time."""
    guarded: bool = False
    """Whether the subject was promoted."""
    anchor: Figures = ()
    """What no promotion moves."""


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
    after = after if ratios == state.ratios else replace(after, ratios=ratios)
    seen = snapshot.evidence.arms.get(state.stable.revision)
    figures = taken(snapshot.spec.analysis, state.anchor, seen, state.stable.revision, snapshot.now)
    after = after if figures == state.anchor else replace(after, anchor=figures)
    if not _reporting(snapshot, after):
        return after
    return _with_reports(
        snapshot,
        after,
        _canary_pairing(snapshot, after, canary, state.stable),
        _against_stable(snapshot, after, canary, state.stable),
    )


def is_steady(snapshot: Snapshot, state: State, *revisions: str) -> bool:
    """Whether the endings of these arms can be compared with stable's, at the shares that all have now."""
    arms = snapshot.evidence.arms
    reference = arms.get(state.stable.revision) if state.stable else None
    deadline = snapshot.spec.analysis.episode_deadline_seconds
    return steady(map(arms.get, revisions), reference, state.shares_since(), snapshot.now, deadline)


def observed_promoted(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> State:
    """The state after the dry runs have looked at a promoted arm."""
    if snapshot.evidence.unavailable or not _reporting(snapshot, state):
        return state
    return _with_reports(snapshot, state, _promoted_pairing(state, new, old), _against_old(snapshot, new, old))


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
    return _judge(snapshot, _promoted_pairing(state, new, old), _against_old(snapshot, new, old))


def _canary_pairing(snapshot: Snapshot, state: State, canary: ArmState, stable: ArmState) -> Pairing:
    earlier = snapshot.spec.rollout.steps[: state.step or 0]
    alone = state.weight == 100 and not any(0 < step.weight < 100 for step in earlier)
    return Pairing(
        canary.revision,
        stable.revision,
        first_step=at_first_weight(snapshot, state),
        trials=paired_outcomes.known(snapshot.spec.analysis, state.ratios),
        now=state.weight < 100,
        apart="no step lets stable play beside the canary" if alone else "",
        anchor=state.anchor,
    )


def _promoted_pairing(state: State, new: ArmState, old: ArmState) -> Pairing:
    return Pairing(
        new.revision,
        old.revision,
        "the promoted arm",
        "the old arm",
        now=False,
        apart="the old arm plays no more",
        guarded=True,
        anchor=state.anchor,
    )


def _against_stable(snapshot: Snapshot, state: State, canary: ArmState, stable: ArmState) -> Tested:
    analysis, trials = snapshot.spec.analysis, {(trial.name, trial.claim): trial for trial in state.trials}

    def tested(metric: MetricThreshold, plain: Check) -> Check:
        found = trials.get((metric.name, claim_text(metric)))
        if plain.verdict is not Verdict.PASS:
            return plain
        mine, seen = snapshot.evidence.arms.get(canary.revision), snapshot.evidence.arms.get(stable.revision)
        stray = _outside(metric, mine, seen, found.memory.seen if found else None)
        if stray:
            return stray
        if torn := lost(seen.gap if seen else 0, "stable"):
            return hold(f"{metric.name}: {torn.text}", torn.reason)
        if found is None or not found.begun:
            return hold(f"{metric.name}: no look at both arms yet")
        if seen is None or type_of(metric).outcomes(metric, seen, found.measure) is None:
            text = f"{metric.name}: no number for stable at this look, what is known waits"
            return hold(text, reasons.EMPTY_RESULT)
        return weigh(metric, found, analysis, state.weight / 100.0, episode_rate(snapshot, state, canary.revision))

    return tested


def _against_old(snapshot: Snapshot, new: ArmState, old: ArmState) -> Tested:
    """The old arm plays no more: what the world does to the promoted one alone is no evidence against it, and what was
    proven of it beside the old one stands."""

    def tested(metric: MetricThreshold, plain: Check) -> Check:
        if plain.verdict is not Verdict.PASS:
            return plain
        mine, seen = snapshot.evidence.arms.get(new.revision), snapshot.evidence.arms.get(old.revision)
        stray = _outside(metric, mine, seen, None, "the promoted arm", "the old arm")
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
    """What is to be said of returns that leave their range; nothing else has one."""
    if metric.return_range is None:
        return None
    found = (type_of(metric).outcomes(metric, arm, PLAIN) if arm else None for arm in (subject, reference))
    both = Pair(*(outcomes or NONE for outcomes in found))
    return out_of_range(metric, both, taken, subject_is, reference_is)


def _judge(snapshot: Snapshot, pairing: Pairing, tested: Tested) -> Judgement:
    """What the checks that may act say together."""
    evidence = snapshot.evidence
    if evidence.unavailable:
        return Judgement(hold=f"no evidence: {evidence.unavailable}", hold_reason=evidence.reason)
    acting = [item for item in snapshot.spec.analysis.metrics if not item.dry_run]
    alpha = alpha_of_bound(snapshot.spec.analysis)
    checks = [_check(snapshot, metric, pairing, tested, alpha) for metric in acting]
    checks += _anchored(snapshot, pairing, alpha)
    if found := _unfinished(snapshot, pairing):
        checks.append(found)
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


def _anchored(snapshot: Snapshot, pairing: Pairing, alpha: float) -> list[Check]:
    """What the figures say that no promotion moves; most analyses have none."""
    analysis, arms = snapshot.spec.analysis, snapshot.evidence.arms
    if analysis.anchor is None:
        return []
    subject, reference = arms.get(pairing.subject), arms.get(pairing.reference)
    called = {"subject_is": pairing.subject_is, "reference_is": pairing.reference_is}
    waits = not pairing.guarded
    return list(against_anchor(analysis, pairing.anchor, subject, reference, alpha, **called, waits=waits))


def _unfinished(snapshot: Snapshot, pairing: Pairing) -> Check | None:
    """What opened episodes say; a guard ends by its time, whatever is open then."""
    arms = snapshot.evidence.arms
    subject, reference = arms.get(pairing.subject), arms.get(pairing.reference)
    called = pairing.subject_is, pairing.reference_is
    return unfinished(snapshot.spec.analysis, subject, reference, *called, passing=not pairing.guarded)


def _reporting(snapshot: Snapshot, state: State) -> bool:
    """Whether there are dry runs, or were any; most analyses have none."""
    return bool(state.reports) or any([item.dry_run for item in snapshot.spec.analysis.metrics])


def _with_reports(snapshot: Snapshot, state: State, pairing: Pairing, tested: Tested) -> State:
    """The state with what the dry runs say."""
    dry = [item for item in snapshot.spec.analysis.metrics if item.dry_run]
    alpha = alpha_of_bound(snapshot.spec.analysis)
    told = tuple(report(item, _check(snapshot, item, pairing, tested, alpha), _claim(item)) for item in dry)
    return replace(state, reports=told)


def _claim(metric: MetricThreshold) -> str:
    return claim_text(metric) if metric.test == "sequential" else bounds_text(metric)


def _check(snapshot: Snapshot, metric: MetricThreshold, pairing: Pairing, tested: Tested, alpha: float) -> Check:
    """Bounds first, those of sequential metrics among them; what passes these is `tested`. `alpha`: each bound's."""
    arms = snapshot.evidence.arms
    subject, reference = arms.get(pairing.subject), arms.get(pairing.reference)
    if type_of(metric).against_own_past:
        return _drift(snapshot, metric, pairing, subject, reference)
    compared = _comparison(metric, pairing)
    plain = check(
        metric,
        subject,
        reference,
        alpha,
        compared,
        subject_is=pairing.subject_is,
        reference_is=pairing.reference_is,
    )
    if metric.test == "sequential":
        return tested(metric, plain)
    return plain if plain.verdict is Verdict.BREACH else _stray(metric, pairing, subject, reference) or plain


def _comparison(metric: MetricThreshold, pairing: Pairing) -> Comparison:
    """What a ratio is judged by. What it compares over the whole rollout it compares while both arms get episodes."""
    trial, apart, kind = pairing.trials.get(metric.name), pairing.apart, type_of(metric)
    was = kind.of_whole_rollout and trial is not None and trial.compared >= metric.min_episodes
    if not pairing.now and not apart and (was or not kind.is_counted(metric)):
        apart = "stable plays no more, it was within the bar while it did"
    return Comparison(trial, apart)


def _stray(
    metric: MetricThreshold, pairing: Pairing, subject: ArmEvidence | None, reference: ArmEvidence | None
) -> Check | None:
    """A ratio of returns that leave their range: such a batch is no evidence, and what was compared before it must not
    speak for the arm."""
    if pairing.apart or not has_ratio(metric):
        return None
    trial = pairing.trials.get(metric.name)
    taken = Pair(*trial.seen[0]) if trial and trial.seen else None
    return _outside(metric, subject, reference, taken, pairing.subject_is, pairing.reference_is)


def _drift(
    snapshot: Snapshot,
    metric: MetricThreshold,
    pairing: Pairing,
    subject: ArmEvidence | None,
    reference: ArmEvidence | None,
) -> Check:
    """Each step and the guard is a comparison of its own and gets its part of the metric's budget."""
    if pairing.first_step:
        return Check(Verdict.PASS, f"{metric.name}: the first step has no earlier one to compare with")
    for arm, whose in ((subject, pairing.subject_is), (reference, pairing.reference_is)):
        if torn := lost(arm.gap if arm else 0, whose):
            return hold(f"{metric.name}: {torn.text}", torn.reason)
    parts = len(snapshot.spec.rollout.steps)
    alpha = math.exp(-bars_of(snapshot.spec.analysis).worse) / parts
    return drift(metric, subject, reference, alpha, pairing.subject_is)


def episode_rate(snapshot: Snapshot, state: State, revision: str) -> float:
    """Episodes that the arm finishes a second; 0 where nothing is known and while the agent that plays is suspended."""
    elapsed = seconds_since(state.rollout_started_at, snapshot.now)
    idle = bool(snapshot.desired.suspended_agent) or elapsed <= 0.0
    return 0.0 if idle else episodes(snapshot, revision) / elapsed


def episodes(snapshot: Snapshot, revision: str) -> int:
    """Finished episodes of the arm in its window; 0 where nothing is known."""
    arm = snapshot.evidence.arms.get(revision)
    return arm.episodes if arm else 0
