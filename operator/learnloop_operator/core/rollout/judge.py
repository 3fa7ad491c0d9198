"""All checks of the analysis at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.core.rollout.evidence import Check, Verdict, check
from learnloop_operator.core.rollout.state import Arm, State
from learnloop_operator.core.rollout.trial import claim_text, counts, looked
from learnloop_operator.core.rollout.verdict import after_promotion, weigh
from learnloop_operator.core.rollout.windows import SHORTEST
from learnloop_operator.core.rollout.world import Snapshot
from learnloop_operator.core.times import seconds_since

Tested = Callable[[MetricThreshold, Check], Check]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`breach` speaks first; `hold` is the first check without enough data; neither: everything passed."""

    breach: str = ""
    hold: str = ""
    passed: str = ""


def observed(snapshot: Snapshot, state: State, canary: Arm) -> State:
    """The state after its sequential tests have taken this look. They compare while both arms get episodes only."""
    if snapshot.evidence.unavailable or state.stable is None or young(snapshot, state):
        return state
    trials = looked(
        snapshot.spec.analysis,
        state.trials,
        snapshot.evidence,
        canary.revision,
        state.stable.revision,
        concurrent=0 < state.weight < 100,
    )
    return replace(state, trials=trials)


def young(snapshot: Snapshot, state: State) -> bool:
    """The shortest window reaches back before the rollout, where the same revision may have failed once already."""
    return seconds_since(state.rollout_started_at, snapshot.now) < SHORTEST


def judge_canary(snapshot: Snapshot, state: State, canary: Arm, stable: Arm) -> Judgement:
    """Weigh the canary against stable by every check of spec.analysis."""
    analysis, trials = snapshot.spec.analysis, {(trial.name, trial.claim): trial for trial in state.trials}
    elapsed = seconds_since(state.rollout_started_at, snapshot.now)
    rate = episodes(snapshot, canary.revision) / elapsed if elapsed > 0 else 0.0

    def tested(metric: MetricThreshold, plain: Check) -> Check:
        found = trials.get((metric.name, claim_text(metric)))
        if plain.verdict is not Verdict.PASS:
            return plain
        if counts(metric, snapshot.evidence.arms.get(stable.revision)) is None:
            return Check(Verdict.HOLD, f"{metric.name}: no number for stable at this look, what is known waits")
        if found is None:
            return Check(Verdict.HOLD, f"{metric.name}: no look at both arms yet")
        return weigh(metric, found, analysis, state.weight / 100.0, rate)

    return _judge(snapshot, canary.revision, stable.revision, "the canary", "stable", tested)


def judge_promoted(snapshot: Snapshot, new: Arm, old: Arm) -> Judgement:
    """Weigh a promoted arm against what the old one has left behind."""
    arms, analysis = snapshot.evidence.arms, snapshot.spec.analysis

    def tested(metric: MetricThreshold, plain: Check) -> Check:
        if plain.verdict is not Verdict.PASS:
            return plain
        return after_promotion(metric, arms.get(new.revision), arms.get(old.revision), analysis) or plain

    return _judge(snapshot, new.revision, old.revision, "the promoted arm", "the old arm", tested)


def _judge(
    snapshot: Snapshot, subject: str, reference: str, subject_is: str, reference_is: str, tested: Tested
) -> Judgement:
    """Thresholds first, hard bounds of sequential metrics among them; what passes these is `tested`."""
    evidence = snapshot.evidence
    if evidence.unavailable:
        return Judgement(hold=f"no evidence: {evidence.unavailable}")
    checks: list[Check] = []
    for metric in snapshot.spec.analysis.metrics:
        arms = evidence.arms.get(subject), evidence.arms.get(reference)
        plain = check(metric, *arms, subject_is=subject_is, reference_is=reference_is)
        checks.append(tested(metric, plain) if metric.test == "sequential" else plain)
    return Judgement(
        breach="; ".join(item.sentence for item in checks if item.verdict is Verdict.BREACH),
        hold="; ".join(item.sentence for item in checks if item.verdict is Verdict.HOLD),
        passed="; ".join(item.sentence for item in checks if item.verdict is Verdict.PASS),
    )


def episodes(snapshot: Snapshot, revision: str) -> int:
    """Finished episodes of the arm in its window; 0 where nothing is known."""
    arm = snapshot.evidence.arms.get(revision)
    return arm.episodes if arm else 0
