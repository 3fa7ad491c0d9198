"""The specification's metrics of agents and of the models they act by, on rewards as they were computed.

Rewards here are raw: the weighted sum of a RewardPolicy's components. A normalised reward has the mean 0 by its making,
whatever an agent learns, so its mean says nothing.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from learnloop_api.wire.training import ACTION_SHARE, FIGURES, RESOURCES, Heartbeat
from learnloop_common.bounded_labels import OTHER, BoundedLabels, Labels

MOST_VERSIONS = 4
"""Of one agent: what serves, what is on trial, what is kept warm, and the one before. The oldest one goes."""
RECALLS = 100
STALE_SECONDS, STALE_AT_ONCE = 60.0, 10
"""After so long the figures of an agent are read again, of so many in one pass: another replica may have new ones."""
_SIZES = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0)
REWARD_BUCKETS = (*(-size for size in reversed(_SIZES)), 0.0, *_SIZES)
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_AGENT = ("namespace", "agent")
_VERSION = (*_AGENT, "model_version")


_RUN = ("namespace", "training_job")
Named = Sequence[tuple[str, str, tuple[str, ...]]]
"""Name, meaning and labels of each metric."""
_AGENT_GAUGES: Named = (
    (
        "agent_rl_model_reward_mean",
        "Mean raw reward of a model version, over its share of the agent's newest 100 episodes.",
        _VERSION,
    ),
    (
        "agent_rl_model_error_rate",
        "Share of these episodes of a model version that ended in an error.",
        _VERSION,
    ),
    ("average_reward", "Mean raw reward of the agent's newest 100 episodes.", _AGENT),
    (
        "task_success_rate",
        "Share of the agent's newest 100 episodes whose task succeeded, of those with a verdict.",
        _AGENT,
    ),
    (
        "memory_utilization",
        "Share of the agent's newest 100 judged recalls that helped: their episode earned more than expected.",
        _AGENT,
    ),
)
_RUN_GAUGES: Named = (
    ("training_throughput", "Environment steps a second of a run under way.", _RUN),
    (
        "resource_utilization",
        "Share of what a run's first rank may use that it uses; resource: cpu, memory, gpu, gpu_memory.",
        (*_RUN, "resource"),
    ),
    ("learnloop_training_progress_ratio", "Share of its steps that a run has done.", _RUN),
    ("learnloop_training_return", "Mean return of the newest 100 episodes of a run under way.", _RUN),
    (
        "learnloop_training_action_ratio",
        "Share of each discrete action among the newest ones of a run.",
        (*_RUN, "action"),
    ),
    (
        "learning_efficiency",
        "Samples to convergence of the agent's newest run: environment steps until its return stayed within 5 % of its "
        "rise from where it ended. Absent until a run converged.",
        _AGENT,
    ),
    (
        "model_convergence",
        "How settled the curve of returns of the agent's newest run is: 1 minus its change over the last quarter, as a "
        "share of its whole range.",
        _AGENT,
    ),
)


def _gauges(registry: CollectorRegistry, named: Named) -> list[Gauge]:
    return [Gauge(name, meaning, labels, registry=registry) for name, meaning, labels in named]


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest episodes of an agent, at most 100, that one model version played; version None: all of them.

    Attributes:
        reward: mean raw reward; None while none of them has one.
        success: share that succeeded; None where the task knows no success.
        errors: share that ended in an error.
    """

    version: str | None
    reward: float | None
    success: float | None
    errors: float


class AgentMetrics:
    """Series of agents and their model versions, at most 1,000 sets of labels of each kind."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read: dict[Labels, float] = {}
        """When the figures of an agent were read."""
        self._trajectories = Counter(
            "agent_rl_trajectories_collected_total",
            "Trajectories stored, by the model version that acted.",
            _VERSION,
            registry=registry,
        )
        self._rewards = Histogram(
            "agent_rl_trajectory_reward",
            "Raw rewards of trajectories: the weighted sum of the components, before normalisation.",
            _VERSION,
            buckets=REWARD_BUCKETS,
            registry=registry,
        )
        self._mean, self._errors, self._average, self._success, self._utilization = _gauges(registry, _AGENT_GAUGES)
        self._judged = Counter(
            "learnloop_recalls_judged_total",
            "Recalls whose episode was rewarded; verdict: helped, hurt.",
            (*_AGENT, "verdict"),
            registry=registry,
        )
        self._opinions = Counter(
            "learnloop_feedback_given_total",
            "Opinions of people that came to their episodes; opinion: positive, neutral, negative.",
            (*_AGENT, "opinion"),
            registry=registry,
        )
        self.latency = Histogram(
            "memory_latency", "Seconds of one recall, database included.", buckets=SECONDS_BUCKETS, registry=registry
        )
        self._verdicts: defaultdict[Labels, deque[bool]] = defaultdict(lambda: deque(maxlen=RECALLS))
        self._agents = BoundedLabels(self._forget_agent)
        self._versions = BoundedLabels(self._forget_version)
        self._served: dict[tuple[str, str], tuple[str, ...]] = {}
        """The admitted versions of each agent."""
        self._played: defaultdict[str, set[str]] = defaultdict(set)

    def trajectory(self, namespace: str, agent: str, version: str) -> None:
        labels = self._version(namespace, agent, version)
        self._trajectories.labels(*labels).inc()
        if OTHER not in labels:
            self._played[namespace].add(agent)

    def played(self, namespace: str) -> set[str]:
        """Agents of which trajectories were stored here since the last call."""
        return self._played.pop(namespace, set())

    def reward(self, namespace: str, agent: str, version: str, raw: float) -> None:
        self._rewards.labels(*self._version(namespace, agent, version)).observe(raw)

    def stale(self, namespace: str) -> list[str]:
        """Agents whose figures were read a while ago, longest first, a few together."""
        before = self._clock() - STALE_SECONDS
        stale = sorted((at, pair[1]) for pair, at in self._read.items() if pair[0] == namespace and at <= before)
        return [agent for _, agent in stale[:STALE_AT_ONCE]]

    def recent(self, namespace: str, agent: str, figures: Sequence[Recent], *, news: bool = True) -> None:
        """Sets the newest figures of the agent and its model versions; a version without figures loses its series.

        Args:
            news: something happened here; else it is only looked at again, which keeps no other agent out.
        """
        by_version = {of.version: of for of in figures}
        pair: Labels = (namespace, agent)
        if news:
            pair = self._agents.admit(pair) if None in by_version else pair
            for version in by_version:
                if version is not None:
                    self._version(namespace, agent, version)
        if not self._agents.knows(pair):  # the mean of strangers' means would say nothing
            return
        self._read[pair] = self._clock()
        whole = by_version.get(None)
        _tell(self._average, pair, whole.reward if whole else None)
        _tell(self._success, pair, whole.success if whole else None)
        for version in {*self._served.get((namespace, agent), ()), *(name for name in by_version if name is not None)}:
            labels = (*pair, version)
            of = by_version.get(version)
            if self._versions.knows(labels):
                _tell(self._mean, labels, of.reward if of else None)
                _tell(self._errors, labels, of.errors if of else None)

    def opinion(self, namespace: str, agent: str, value: float) -> None:
        """A person's opinion, -1 to 1, came to its episode."""
        opinion = "positive" if value > 0 else "negative" if value < 0 else "neutral"
        self._opinions.labels(*self._agents.admit((namespace, agent)), opinion).inc()

    def judged(self, namespace: str, agent: str, recalls: int, helped: bool) -> None:
        """So many recalls were judged together."""
        pair = self._agents.admit((namespace, agent))
        self._judged.labels(*pair, "helped" if helped else "hurt").inc(recalls)
        if OTHER not in pair:
            verdicts = self._verdicts[pair]
            verdicts.extend([helped] * recalls)
            self._utilization.labels(*pair).set(sum(verdicts) / len(verdicts))

    def _version(self, namespace: str, agent: str, version: str) -> Labels:
        versions = self._served.get((namespace, agent), ())
        if version not in versions and len(versions) >= MOST_VERSIONS:
            self._versions.drop((namespace, agent, versions[0]))
        labels = self._versions.admit((namespace, agent, version))
        if OTHER not in labels:
            # The one that acted last is at the end.
            others = [other for other in self._served.get((namespace, agent), ()) if other != version]
            self._served[namespace, agent] = (*others, version)
        return labels

    def _forget_version(self, labels: Labels) -> None:
        pair = (labels[0], labels[1])
        left = tuple(version for version in self._served.pop(pair, ()) if version != labels[2])
        if left:
            self._served[pair] = left
        _remove((self._trajectories, self._rewards, self._mean, self._errors), labels)

    def _forget_agent(self, labels: Labels) -> None:
        self._verdicts.pop(labels, None)
        self._read.pop(labels, None)
        _remove((self._average, self._success, self._utilization), labels)
        for counter in (self._judged, self._opinions):
            counter.remove_by_labels(dict(zip(_AGENT, labels, strict=True)))


def _tell(gauge: Gauge, labels: Labels, value: float | None) -> None:
    if value is None:
        _remove((gauge,), labels)
    else:
        gauge.labels(*labels).set(value)


def _remove(collectors: Sequence[Counter | Gauge | Histogram], labels: Labels) -> None:
    for collector in collectors:
        with suppress(KeyError):
            collector.remove(*labels)


SILENT_SECONDS = 120.0
"""A run that says nothing for so long has ended, or tells another replica."""
MOST_RUNS = 200
MOST_RESULTS = 1000
BY_HAND = "_none"
"""The agent of a run by hand."""


class RunMetrics:
    """Gauges of runs that are under way, and of each agent's newest run what remains of it: how it learned."""

    def __init__(self, registry: CollectorRegistry) -> None:
        named = _gauges(registry, _RUN_GAUGES)
        self._throughput, self._resources, self._progress, self._return, self._actions = named[:5]
        self._efficiency, self._convergence = named[5:]
        self._figures = {
            name: Gauge(f"learnloop_training_{name}", meaning, _RUN, registry=registry)
            for name, meaning in FIGURES.items()
        }
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
        self._forget(key)  # a figure that is not sent any more has no series
        self._throughput.labels(*key).set(beat.steps_per_second)
        self._progress.labels(*key).set(min(1.0, beat.step / beat.total_steps))
        if beat.recent_return is not None and beat.recent_return.episodes:
            self._return.labels(*key).set(beat.recent_return.mean)
        for name, value in beat.figures.items():
            if name in self._figures:
                self._figures[name].labels(*key).set(value)
            elif name in RESOURCES:
                self._resources.labels(*key, RESOURCES[name]).set(value)
            elif name.startswith(ACTION_SHARE):
                self._actions.labels(*key, name.removeprefix(ACTION_SHARE)).set(value)

    def sweep(self) -> None:
        """Ends the series of runs that fell silent."""
        for key in self._runs.silent(SILENT_SECONDS):
            self._runs.drop(key)

    def _learned(self, namespace: str, beat: Heartbeat) -> None:
        results = {"samples_to_convergence": self._efficiency, "convergence": self._convergence}
        values = [(gauge, beat.figures[name]) for name, gauge in results.items() if name in beat.figures]
        if not values:
            return
        pair = self._agents.admit((namespace, beat.agent or BY_HAND))
        if OTHER not in pair:
            for gauge, value in values:
                gauge.labels(*pair).set(value)

    def _forget(self, key: Labels) -> None:
        _remove((self._throughput, self._progress, self._return, *self._figures.values()), key)
        for gauge in (self._resources, self._actions):
            gauge.remove_by_labels(dict(zip(_RUN, key, strict=True)))

    def _forget_agent(self, pair: Labels) -> None:
        _remove((self._efficiency, self._convergence), pair)
