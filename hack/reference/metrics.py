"""The page of metrics, from the registries of the three servers."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from learnloop_dataplane.metrics import Metrics as DataPlaneMetrics
from learnloop_operator.adapters.operator_metrics import OperatorMetrics as OperatorMetrics
from learnloop_serving.metrics import Metrics as ServingMetrics
from reference.markdown import code, page, table

_FOREIGN = ("python_", "process_")
_SUFFIX = {"counter": "_total"}


def pages() -> Iterator[tuple[str, str]]:
    """The one page of metrics."""
    parts = []
    for title, registry in (
        ("Operator", OperatorMetrics().registry),
        ("Data plane", DataPlaneMetrics().registry),
        ("Policy server", ServingMetrics("policy", "0" * 8).registry),
    ):
        parts += [f"## {title}", table(("metric", "type", "labels", "meaning"), sorted(_rows(registry)))]
    yield "metrics.md", page("Metrics", "the registries of the servers", *parts)


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    for collector in registry._collector_to_names:
        labels = ", ".join(code(name) for name in getattr(collector, "_labelnames", ()))
        for family in getattr(collector, "describe", collector.collect)():
            if not family.name.startswith(_FOREIGN):
                yield code(family.name + _SUFFIX.get(family.type, "")), family.type, labels, family.documentation
