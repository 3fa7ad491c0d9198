"""The page of metrics, from the registries of the three servers: what they export is what is described."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from learnloop_dataplane.metrics import Metrics as DataPlaneMetrics
from learnloop_gateway.recording import LanguageMetrics
from learnloop_operator.operator_metrics import OperatorMetrics as OperatorMetrics
from learnloop_serving.server_metrics import Families, Metrics as ServingMetrics
from reference.markdown import code, page, table

_FOREIGN = ("python_", "process_")
_SUFFIX = {"counter": "_total"}
_UNITS = ("seconds", "bytes", "ratio")
RETURNS = "reward"
UNUSUAL: Mapping[str, tuple[str, str]] = {
    "agent_rl_trajectory_reward": (RETURNS, "no unit in the name: rewards have none"),
    "agent_rl_model_reward_mean": (RETURNS, "the specification's name"),
    "agent_rl_model_error_rate": ("ratio", "the specification's name; a share, no rate"),
    "average_reward": (RETURNS, "the specification's name: no prefix"),
    "task_success_rate": ("ratio", "the specification's name: no prefix, and a share, no rate"),
    "learning_efficiency": ("steps", "the specification's name: no prefix; fewer steps are better"),
    "memory_utilization": ("ratio", "the specification's name: no prefix, no unit"),
    "memory_latency": ("seconds", "the specification's name: no prefix, no unit"),
    "model_convergence": ("ratio", "the specification's name: no prefix, no unit"),
    "training_throughput": ("steps per second", "the specification's name: no prefix, no unit"),
    "resource_utilization": ("ratio", "the specification's name: no prefix, no unit"),
}
"""Of metrics whose names do not say it: the unit, and why the name is as it is."""
ADDED = ("namespace", "pod", "component", "job", "instance", "exported_namespace")
"""Labels that Prometheus adds or makes of what a target says, as the chart configures it."""
_INTRODUCTION = """Prometheus adds the target's labels `namespace`, `pod` and `component`. Where a metric has a label
`namespace` of its own, Prometheus shows it as `exported_namespace`, because the chart sets `honor_labels: false`.

Agents and model versions are chosen by users, so each process tells at most 1,000 sets of these labels apart. A new
one takes the place of one that was silent for an hour; what does not fit is counted as `_other`.

Names follow the conventions of Prometheus and OpenMetrics: a prefix, base units, `_total` for counters.
These do not:"""


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as it is exported."""

    name: str
    type: str
    unit: str
    labels: tuple[str, ...]
    meaning: str


def _spoken() -> CollectorRegistry:
    registry = CollectorRegistry()
    LanguageMetrics(Families(registry, "model", "0" * 8))
    return registry


def described() -> Mapping[str, tuple[Described, ...]]:
    """Every metric by the server that exports it."""
    servers = {
        "Operator": OperatorMetrics().registry,
        "Data plane": DataPlaneMetrics().registry,
        "Policy server": ServingMetrics("policy", "0" * 8).registry,
        "Gateway of a language model, in addition to those of a policy server": _spoken(),
    }
    return {title: tuple(sorted(_of(registry), key=lambda item: item.name)) for title, registry in servers.items()}


def pages() -> Iterator[tuple[str, str]]:
    """The one page of metrics."""
    unusual = [(code(name), why) for name, (_, why) in sorted(UNUSUAL.items())]
    parts = [_INTRODUCTION, table(("metric", "why it is called so"), unusual)]
    for title, metrics in described().items():
        rows = [
            (code(item.name), item.type, item.unit, ", ".join(map(code, item.labels)), item.meaning) for item in metrics
        ]
        parts += [f"## {title}", table(("metric", "type", "unit", "labels", "meaning"), rows)]
    yield "metrics.md", page("Metrics", "the registries of the servers", *parts)


def unit(name: str, kind: str) -> str:
    """The unit of a metric, in words."""
    if name in UNUSUAL:
        return UNUSUAL[name][0]
    base = name.removesuffix("_total")
    suffix = next((unit for unit in _UNITS if base.endswith(f"_{unit}")), None)
    return suffix or ("count" if kind == "counter" else "")


def _of(registry: CollectorRegistry) -> Iterator[Described]:
    for collector in registry._collector_to_names:
        labels = tuple(getattr(collector, "_labelnames", ()))
        for family in getattr(collector, "describe", collector.collect)():
            if not family.name.startswith(_FOREIGN):
                name = family.name + _SUFFIX.get(family.type, "")
                yield Described(name, family.type, unit(name, family.type), labels, family.documentation)
