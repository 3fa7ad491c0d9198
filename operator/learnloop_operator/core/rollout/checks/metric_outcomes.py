"""A metric of an arm as outcomes that can be bet on: how many there were, and the sum of their values in 0..1."""

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.core.rollout.checks.returns_out_of_range import fitted
from learnloop_operator.core.rollout.evidence.arm_evidence import P99, ArmEvidence
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.latency import bound_of, prompt, total
from learnloop_operator.tuning.value_objects import value


@value
class Measure:
    """What is fixed before the first outcome is compared, because it follows from stable's earlier ones."""

    bound: float | None = None
    """latency: requests count as good that are no slower, in seconds."""
    block: float = 1.0
    """So many events count as one outcome (sequential/latency.py says why)."""


PLAIN = Measure()


def measure_of(metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
    """The measure that stable's outcomes so far suggest; None where they do not suffice."""
    if metric.type in ("latency", "promql") and stable.episodes <= 0:
        return None
    if metric.type == "latency":
        bound, events = bound_of(stable.latency, metric.quantile or P99), total(stable.latency)
        return Measure(bound, _block(events, stable)) if bound is not None else None
    if metric.type == "promql":
        known = stable.events.get(metric.name)
        return Measure(None, _block(known.n, stable)) if known and known.n > 0.0 else None
    return PLAIN


def outcomes(metric: MetricThreshold, arm: ArmEvidence | None, measure: Measure = PLAIN) -> Counts | None:
    """The arm's outcomes and the sum of their values, 0 for the worst and 1 for the best; None where none is known.

    Returns outside their range give a sum that no outcomes can have; returns_out_of_range.py says what follows."""
    if arm is None:
        return None
    match metric.type:
        case "success":
            return _rate(arm, arm.success_rate)
        case "errors":
            return _rate(arm, None if arm.error_rate is None else 1.0 - arm.error_rate)
        case "return":
            found = _rate(arm, _share_of_range(metric, arm.mean_return))
            return fitted(found) if found else None
        case "latency":
            found = prompt(arm.latency, measure.bound) if measure.bound is not None else None
        case _:
            found = arm.events.get(metric.name)
    return Counts(found.n / measure.block, found.total / measure.block) if found else None


def share_of_range(metric: MetricThreshold) -> float | None:
    """maxDrop on the scale 0..1; None where the API server would have refused the metric."""
    width = 1.0
    if metric.type == "return":
        width = metric.return_range.highest - metric.return_range.lowest if metric.return_range else 0.0
    drop = metric.max_drop / width if metric.max_drop is not None and width > 0.0 else 0.0
    return drop if 0.0 < drop < 1.0 else None


def _rate(arm: ArmEvidence, mean: float | None) -> Counts | None:
    n = float(arm.episodes)
    return None if mean is None else Counts(n, n * mean)


def _share_of_range(metric: MetricThreshold, mean: float | None) -> float | None:
    where = metric.return_range
    return None if mean is None or where is None else (mean - where.lowest) / (where.highest - where.lowest)


def _block(events: float, stable: ArmEvidence) -> float:
    return max(1.0, events / stable.episodes)
