"""What a sequential test makes of its evidence: one check, with the sentence."""

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.core.durations import rough
from learnloop_operator.core.durations import text as duration
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.sequential_test import SequentialTest, bars_of
from learnloop_operator.rollout.evidence.arm_evidence import Check, Verdict, count, number
from learnloop_operator.rollout.metrics.confidence import chance_text
from learnloop_operator.rollout.metrics.metric_type import max_drop_share
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.comparison import Claim, chance, claim, needed


def weigh(metric: MetricThreshold, trial: SequentialTest, analysis: Analysis, share: float, per_second: float) -> Check:
    """Worse rolls the canary back, fine lets the step pass, everything else holds and says for how long.

    `share` is the canary's share of new episodes, `per_second` the episodes it finishes.
    """
    bar, memory, kind = bars_of(analysis), trial.memory, type_of(metric)
    noun, drop = kind.compared_noun(metric, trial.measure), max_drop_share(metric, kind.scale(metric))
    if drop is None:
        return Check(Verdict.HOLD, f"{noun}: spec.analysis.metrics: {metric.name} needs a maxDrop within its range")
    canary, stable = memory.judged.canary, memory.judged.stable
    if canary.n <= 0.0:
        return Check(Verdict.HOLD, f"{noun}: no episodes of the canary and of stable at the same time to compare yet")
    said = f"{noun} of the canary {_value(metric, canary)} vs {_value(metric, stable)} of stable"
    over = f"over {_amount(metric, canary)}"
    worse, fine = chance_text(memory.worse), chance_text(memory.fine)
    tolerated = f"P(not worse by {metric.max_drop:g})"
    found = claim(memory, bar)
    if found is Claim.WORSE:
        return Check(Verdict.BREACH, f"{said} {over}; P(worse) {worse}; bar {_bar(bar.worse)}")
    if found is Claim.FINE:
        return Check(Verdict.PASS, f"{said}; {tolerated} {fine}; bar {_bar(bar.fine)}")
    more = needed(memory, drop, bar, share) if 0.0 < share < 1.0 else None
    wait = "no end in sight at these rates" if more is None else f"about {more:.0f} more canary episodes needed"
    if more is not None and per_second > 0.0:
        wait += f", {duration(rough(more / per_second))} at the present rate"
    bounds = f"bars {_bar(bar.worse)} and {_bar(bar.fine)}"
    reason = reasons.NO_END_IN_SIGHT if more is None else reasons.NOT_ENOUGH_DATA
    text = f"{said} {over}: undecided: P(worse) {worse}, {tolerated} {fine}; {bounds}; {wait}"
    return Check(Verdict.HOLD, text, reason)


def _amount(metric: MetricThreshold, seen: Counts) -> str:
    """Blocks of events are as many as episodes, and are none."""
    episodes = count(int(seen.n))
    return f"the events of {episodes}" if type_of(metric).counts_events else episodes


def _value(metric: MetricThreshold, seen: Counts) -> str:
    """The mean in the metric's own unit."""
    return number(type_of(metric).in_unit(metric, seen.total / seen.n if seen.n > 0.0 else 0.0))


def _bar(log_evidence: float) -> str:
    return f"{chance(log_evidence):.6g}"
