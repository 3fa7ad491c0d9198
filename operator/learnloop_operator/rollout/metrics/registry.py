"""All types of metrics by the name that a specification gives them. Each is registered here, once."""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.metrics.drift import DriftType
from learnloop_operator.rollout.metrics.errors import Errors
from learnloop_operator.rollout.metrics.feedback import Feedback
from learnloop_operator.rollout.metrics.latency import Latency
from learnloop_operator.rollout.metrics.metric_type import MetricType
from learnloop_operator.rollout.metrics.promql import PromQL
from learnloop_operator.rollout.metrics.returns import Returns
from learnloop_operator.rollout.metrics.reward import Reward
from learnloop_operator.rollout.metrics.success import Success
from learnloop_operator.rollout.metrics.unbounded_returns import UnboundedReturns

METRIC_TYPES: dict[str, MetricType] = {
    kind.name: kind for kind in (Success(), Errors(), Returns(), Reward(), Feedback(), Latency(), DriftType(), PromQL())
}
_UNBOUNDED_RETURNS = UnboundedReturns()


def type_of(metric: MetricThreshold | AnyMetric) -> MetricType:
    """What the metric's type says about it. Returns without a range are of a type of their own."""
    kind = METRIC_TYPES[metric.type]
    return _UNBOUNDED_RETURNS if metric.return_range is None and type(kind) is Returns else kind
