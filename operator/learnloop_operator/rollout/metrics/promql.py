"""`promql`: a number of the user's own; with test: sequential, good events of all events."""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType
from learnloop_operator.statistics.betting import Counts


class PromQL(MetricType):
    """The user's query. Nobody knows how many events are behind its number unless totalQuery counts them."""

    name = "promql"
    counts_events = True

    def noun(self, metric: MetricThreshold) -> str:
        """The metric's own name."""
        return metric.name

    def guardrail_noun(self, guardrail: AnyMetric, measure: Measure | None) -> str:
        """`share of good events of NAME`."""
        return f"share of good events of {getattr(guardrail, 'name', self.name)}"

    def queries(self, metric: MetricThreshold, namespace: str, revision: str, seconds: int) -> tuple[str, ...]:
        """The user's query, or for a sequential test that of the good events and that of all of them."""
        asked = (metric.query, metric.total_query) if metric.test == "sequential" else (metric.query,)
        return tuple(_filled_in(query or "", namespace, revision, seconds) for query in asked)

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The query's number, or the share of good events."""
        return arm.custom.get(metric.name)

    def is_counted(self, metric: MetricThreshold) -> bool:
        """Where totalQuery counts the events."""
        return metric.test == "sequential"

    def measure(self, metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
        """The events of stable's average episode."""
        known = stable.events.get(metric.name)
        if stable.episodes <= 0 or known is None or not known.n > 0.0:
            return None
        return Measure(None, max(1.0, known.n / stable.episodes))

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Blocks of events, and the share of good ones in them."""
        found = arm.events.get(metric.name)
        return Counts(found.n / measure.block, found.total / measure.block) if found else None

    def _block_of(self, metric: MetricThreshold, arm: ArmEvidence) -> Measure:
        """The events of the arm's own average episode count as one."""
        events = arm.events.get(metric.name)
        return Measure(None, max(1.0, events.n / max(1, arm.episodes)) if events else 1.0)


def _filled_in(query: str, namespace: str, revision: str, seconds: int) -> str:
    """The query with $revision, $namespace and $window filled in."""
    return query.replace("$revision", revision).replace("$namespace", namespace).replace("$window", f"{seconds}s")
