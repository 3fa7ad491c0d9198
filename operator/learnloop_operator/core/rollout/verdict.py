"""What a sequential test makes of its evidence: one check, with the sentence."""

from learnloop_api.kinds.analysis import Analysis, MetricThreshold
from learnloop_operator.core.durations import text as duration
from learnloop_operator.core.rollout.evidence import NOUN, ArmEvidence, Check, Verdict, count, number
from learnloop_operator.core.rollout.trial import Trial, bars_of, counts, share_of_range
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.comparison import Claim, chance, claim, needed
from learnloop_operator.core.sequential.interval import difference_interval


def weigh(metric: MetricThreshold, trial: Trial, analysis: Analysis, share: float, per_second: float) -> Check:
    """Worse takes the canary back, fine lets the step pass, everything else holds and says for how long.

    `share` is the canary's share of new episodes, `per_second` the episodes it finishes.
    """
    bar, memory, noun = bars_of(analysis), trial.memory, NOUN[metric.type]
    drop = share_of_range(metric)
    if drop is None:
        return Check(Verdict.HOLD, f"{noun}: spec.analysis.metrics: {metric.name} needs a maxDrop within its range")
    canary, stable = memory.judged.canary, memory.judged.stable
    if canary.n <= 0.0:
        return Check(Verdict.HOLD, f"{noun}: no episodes of the canary and of stable at the same time to compare yet")
    said = f"{noun} of the canary {_value(metric, canary)} vs {_value(metric, stable)} of stable"
    over = f"over {count(int(canary.n))}"
    worse, fine = _chance(memory.worse), _chance(memory.fine)
    tolerated = f"P(not worse by {metric.max_drop:g})"
    found = claim(memory, bar)
    if found is Claim.WORSE:
        return Check(Verdict.BREACH, f"{said} {over}; P(worse) {worse}; bar {_bar(bar.worse)}")
    if found is Claim.FINE:
        return Check(Verdict.PASS, f"{said}; {tolerated} {fine}; bar {_bar(bar.fine)}")
    more = needed(memory, drop, bar, share) if 0.0 < share < 1.0 else None
    wait = "no end in sight at these rates" if more is None else f"about {more:.0f} more canary episodes needed"
    if more is not None and per_second > 0.0:
        wait += f", {duration(_rough(more / per_second))} at the present rate"
    bounds = f"bars {_bar(bar.worse)} and {_bar(bar.fine)}"
    return Check(Verdict.HOLD, f"{said} {over}: undecided: P(worse) {worse}, {tolerated} {fine}; {bounds}; {wait}")


def after_promotion(
    metric: MetricThreshold, new: ArmEvidence | None, old: ArmEvidence | None, analysis: Analysis
) -> Check | None:
    """A breach when the promoted arm is certainly worse by more than maxDrop than the old arm was in the rollout.

    The old arm plays no more, so the arms cannot be compared episode by episode: confidence sequences of both must
    lie apart. None: nothing of that kind.
    """
    drop, one, other = share_of_range(metric), counts(metric, new), counts(metric, old)
    if drop is None or one is None or other is None or not (one.n > 0.0 and other.n > 0.0):
        return None
    bar = bars_of(analysis)
    _, high = difference_interval(one, other, 1.0 - chance(bar.worse))
    if high >= -drop:
        return None
    said = f"{NOUN[metric.type]} of the promoted arm {_value(metric, one)} vs {_value(metric, other)} of the old arm"
    certain = f"certainly worse by more than {metric.max_drop:g} (bar {_bar(bar.worse)})"
    return Check(Verdict.BREACH, f"{said} over {count(int(one.n))}; {certain}")


def _value(metric: MetricThreshold, seen: Counts) -> str:
    """The mean in the metric's own unit."""
    mean = seen.total / seen.n if seen.n > 0.0 else 0.0
    if metric.type == "errors":
        mean = 1.0 - mean
    if metric.return_range:
        mean = metric.return_range.lowest + mean * (metric.return_range.highest - metric.return_range.lowest)
    return number(mean)


def _chance(log_evidence: float) -> str:
    value = chance(log_evidence)
    return "> 0.9999" if value > 0.9999 else f"{value:.4f}".rstrip("0").rstrip(".")


def _bar(log_evidence: float) -> str:
    return f"{chance(log_evidence):.6g}"


def _rough(seconds: float) -> float:
    """Two digits: an estimate that changes with every look would be written with every look."""
    return float(f"{seconds:.1e}")
