"""What training runs tell of themselves with each heartbeat, while they go on."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from learnloop_api.wire.training import Heartbeat
from learnloop_api.wire.training_figures import ACTION_SHARE, FIGURES, RESOURCES
from learnloop_common.telemetry.bounded_labels import OTHER, BoundedLabels, Labels

SILENT_SECONDS = 120.0
"""A run that says nothing for so long has ended, or tells another replica."""
MOST_RUNS = 200
MOST_RESULTS = 1000
_RUN = ("namespace", "training_job")
_AGENT = ("namespace", "agent")
NOBODY = "_none"
"""The agent of a run by hand."""


class RunMetrics:
    """Gauges of runs that are under way, and of each agent's newest run what remains of it: how it learned."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._throughput = Gauge(
            "training_throughput", "Environment steps a second of a run under way.", _RUN, registry=registry
        )
        self._resources = Gauge(
            "resource_utilization",
            "Share of what a run's first rank may use that it uses; resource: cpu, memory, gpu, gpu_memory.",
            (*_RUN, "resource"),
            registry=registry,
        )
        self._progress = Gauge(
            "learnloop_training_progress_ratio", "Share of its steps that a run has done.", _RUN, registry=registry
        )
        self._return = Gauge(
            "learnloop_training_return",
            "Mean return of the newest 100 episodes of a run under way.",
            _RUN,
            registry=registry,
        )
        self._figures = {
            name: Gauge(f"learnloop_training_{name}", meaning, _RUN, registry=registry)
            for name, meaning in FIGURES.items()
        }
        self._actions = Gauge(
            "learnloop_training_action_ratio",
            "Share of each discrete action among the newest ones of a run.",
            (*_RUN, "action"),
            registry=registry,
        )
        self._efficiency = Gauge(
            "learning_efficiency",
            "Samples to convergence of the agent's newest run: environment steps until its return stayed within 5 % of "
            "its rise from where it ended. Absent until a run converged.",
            _AGENT,
            registry=registry,
        )
        self._convergence = Gauge(
            "model_convergence",
            "How settled the curve of returns of the agent's newest run is: 1 minus its change over the last quarter, "
            "as a share of its whole range.",
            _AGENT,
            registry=registry,
        )
        self._told: dict[Labels, tuple[tuple[Any, Labels], ...]] = {}
        self._runs = BoundedLabels(self._forget, most=MOST_RUNS, idle_seconds=SILENT_SECONDS)
        self._agents = BoundedLabels(self._forget_agent, most=MOST_RESULTS)

    def beat(self, namespace: str, beat: Heartbeat) -> None:
        """A heartbeat was kept. The last one of an attempt ends the series of its run."""
        self.sweep()
        self._learned(namespace, beat)
        key: Labels = (namespace, beat.job)
        if beat.phase in ("done", "failed"):
            self._runs.drop(key)
            return
        key = self._runs.admit(key)
        if OTHER in key:
            return
        fresh: dict[tuple[Any, Labels], float] = {
            (self._throughput, key): beat.steps_per_second,
            (self._progress, key): min(1.0, beat.step / beat.total_steps),
        }
        if beat.recent_return is not None and beat.recent_return.episodes:
            fresh[self._return, key] = beat.recent_return.mean
        fresh |= self._of_figures(key, beat.figures)
        for series in set(self._told.get(key, ())) - set(fresh):
            _remove(*series)
        for (gauge, labels), value in fresh.items():
            gauge.labels(*labels).set(value)
        self._told[key] = tuple(fresh)

    def sweep(self) -> None:
        """Ends the series of runs that fell silent."""
        for key in self._runs.silent(SILENT_SECONDS):
            self._runs.drop(key)

    def _of_figures(self, key: Labels, figures: Mapping[str, float]) -> dict[tuple[Any, Labels], float]:
        found: dict[tuple[Any, Labels], float] = {}
        for name, value in figures.items():
            if name in self._figures:
                found[self._figures[name], key] = value
            elif name in RESOURCES:
                found[self._resources, (*key, RESOURCES[name])] = value
            elif name.startswith(ACTION_SHARE):
                found[self._actions, (*key, name.removeprefix(ACTION_SHARE))] = value
        return found

    def _learned(self, namespace: str, beat: Heartbeat) -> None:
        told: tuple[tuple[str, Callable[..., Gauge]], ...]
        told = (
            ("samples_to_convergence", self._efficiency.labels),
            ("convergence", self._convergence.labels),
        )
        values = [(series, beat.figures[name]) for name, series in told if name in beat.figures]
        if not values:
            return
        pair = self._agents.admit((namespace, beat.agent or NOBODY))
        if OTHER not in pair:
            for series, value in values:
                series(*pair).set(value)

    def _forget(self, key: Labels) -> None:
        for series in self._told.pop(key, ()):
            _remove(*series)

    def _forget_agent(self, pair: Labels) -> None:
        for gauge in (self._efficiency, self._convergence):
            _remove(gauge, pair)


def _remove(gauge: Any, labels: Labels) -> None:
    with suppress(KeyError):
        gauge.remove(*labels)
