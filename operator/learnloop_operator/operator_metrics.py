"""Prometheus metrics of the operator: passes, writes, watches, and the loops. Prometheus adds pod and namespace."""

from collections.abc import Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from learnloop_common.bounded_labels import OTHER, BoundedLabels, Labels
from learnloop_operator.core.counted_transitions import NOBODY, Happening, evidence_missing_since, new_anomalies
from learnloop_operator.core.plan import Plan

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that is not read here
DURATION_BUCKETS = (10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
_AGENT = ("namespace", "agent")
_ROLLOUT = ("namespace", "model_deployment")
COUNTERS: Mapping[str, tuple[str, str, str]] = {
    "training": (
        "agent_rl_training_jobs_total",
        "TrainingJobs that ended; result: validated, gates_failed (trained, not good enough), failed (no model).",
        "result",
    ),
    "validation": ("agent_rl_model_validations_total", "Models judged by gates; result: passed, failed.", "result"),
    "deployment": (
        "agent_rl_model_deployments_total",
        "Models that came to serve everybody; how: FirstModelServed, Promoted, PromotedByHand.",
        "how",
    ),
    "rollout": (
        "learnloop_rollouts_total",
        "Rollouts that ended; result: promoted, promoted_by_hand, rolled_back, superseded, reverted.",
        "result",
    ),
    "roll_back": (
        "learnloop_rollbacks_total",
        "Models rolled back; reason: as in status.blockedRevisions, e.g. CheckFailed, GrossBreach, Aborted.",
        "reason",
    ),
    "reserved": (
        "learnloop_training_reserved_seconds_total",
        "CPU and GPU time that pods of training reserved by their requests; resource: cpu, gpu.",
        "resource",
    ),
    "spent": ("learnloop_training_cost_total", "Money for that time by the installation's prices.", "currency"),
    "anomaly": (
        "learnloop_anomalies_total",
        "Times that the condition Anomalous became True, by reason.",
        "reason",
    ),
}
"""Counters of an agent: name, help, and the label besides the agent's."""
_RESULTS: Mapping[str, tuple[str, ...]] = {
    "training": ("validated", "gates_failed", "failed"),
    "validation": ("passed", "failed"),
    "rollout": ("promoted", "rolled_back"),
}
"""Results whose series exist from the start, at 0: the first failure is an increase."""


class LoopMetrics:
    """Limit of 1,000 agents and as many rollouts with series of their own; all others are `_other`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            what: Counter(name, message, (*_AGENT, label), registry=registry)
            for what, (name, message, label) in COUNTERS.items()
        }
        self._seconds = Histogram(
            "agent_rl_training_duration_seconds",
            "Wall time of TrainingJobs from the start of their pods to their end, gates included.",
            (*_AGENT, "result"),
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._in_a_row = Gauge(
            "learnloop_training_failures_in_a_row",
            "Newest TrainingJobs of an agent that ended without a validated model, until the last one that had one.",
            _AGENT,
            registry=registry,
        )
        self._anomalous = Gauge(
            "learnloop_anomalous", "1 while the condition Anomalous of an agent is True.", _AGENT, registry=registry
        )
        self._weight = Gauge(
            "learnloop_rollout_weight_ratio",
            "Share of new episodes that the canary gets; 0 where there is none.",
            _ROLLOUT,
            registry=registry,
        )
        self._missing = Gauge(
            "learnloop_evidence_missing_since_timestamp_seconds",
            "Since when a running rollout has had no evidence that can be read, Unix time; no series while it has.",
            _ROLLOUT,
            registry=registry,
        )
        self._agents = BoundedLabels(self._forget_agent)
        self._rollouts = BoundedLabels(self._forget_rollout)

    def count(self, happenings: Sequence[Happening]) -> None:
        for item in happenings:
            labels = (*self._agent((item.namespace, item.agent)), item.result[:63])
            self._counters[item.what].labels(*labels).inc(item.amount)
            if item.what == "training" and item.seconds is not None:
                self._seconds.labels(*labels).observe(item.seconds)

    def stands(self, kind: str, namespace: str, name: str, plan: Plan, agent: str = NOBODY) -> None:
        """Set the gauges of an object after a pass. `agent`: its LearningAgent, or `_none`."""
        if kind in ("TrainingJob", "ModelDeployment"):
            self._agent((namespace, agent))
        if kind == "LearningAgent":
            pair = self._agent((namespace, name))
            if OTHER not in pair:
                self._in_a_row.labels(*pair).set(int(plan.figures.get("training_failures_in_a_row", 0)))
                self._anomalous.labels(*pair).set(new_anomalies({}, plan.status) != ())
        elif kind == "ModelDeployment":
            pair = self._rollouts.admit((namespace, name))
            if OTHER not in pair:
                self._weight.labels(*pair).set((plan.status.get("weight") or 0) / 100.0)
                since = evidence_missing_since(plan.status)
                self._missing.remove_by_labels(dict(zip(_ROLLOUT, pair, strict=True)))
                if since is not None:
                    self._missing.labels(*pair).set(since)

    def gone(self, kind: str, namespace: str, name: str) -> None:
        if kind == "LearningAgent":
            self._agents.drop((namespace, name))
        elif kind == "ModelDeployment":
            self._rollouts.drop((namespace, name))

    def _agent(self, agent: Labels) -> Labels:
        new = not self._agents.knows(agent)
        pair = self._agents.admit(agent)
        for what, results in _RESULTS.items() if new else ():
            for result in results:
                self._counters[what].labels(*pair, result)
        return pair

    def _forget_agent(self, pair: Labels) -> None:
        for collector in (*self._counters.values(), self._seconds, self._in_a_row, self._anomalous):
            collector.remove_by_labels(dict(zip(_AGENT, pair, strict=True)))

    def _forget_rollout(self, pair: Labels) -> None:
        for gauge in (self._weight, self._missing):
            gauge.remove_by_labels(dict(zip(_ROLLOUT, pair, strict=True)))


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class OperatorMetrics:
    """One registry for one operator process (a second one in the same process, as in tests, does not clash)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.loop = LoopMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.reconciles = self._counter(
            "reconcile",
            "Passes over objects; result: ok, gone, error, not_leading",
            "kind",
            "result",
        )
        self.seconds = self._histogram("reconcile_seconds", "Duration of one pass: gather, decide, apply", "kind")
        self.depth = self._gauge("queue_depth", "Objects waiting for a pass")
        self.cuts = self._counter(
            "watch_cut", "Watches and lists that broke off or failed, and were asked for again", "resource"
        )
        self.writes = self._counter("api_writes", "Writes sent to the API server", "kind", "verb")
        self.lane_looks = self._counter(
            "fast_lane_looks",
            "Looks at the pods of one arm; result: ok, some (not of all of them), PodsUnreachable, CountersUnusable",
            "result",
        )
        self.lane_arms = self._gauge("watched_arms", "Arms whose pods are read")
        self.lane_seconds = self._histogram(
            "fast_lane_breach_to_rollback_seconds",
            "From the look that showed a gross breach until the rollback was written and read again",
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "When the operator's certificate ends, which is renewed with those of all parts, Unix time; 0 without TLS.",
        )
        self.leader = self._gauge("leader", "1 while this process holds the Lease")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"learnloop_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"learnloop_{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"learnloop_{name}", text, labels, buckets=BUCKETS, registry=self.registry)

    def cut(self, plural: str) -> None:
        self.cuts.labels(resource=plural).inc()

    def written(self, verb: str, kind: str) -> None:
        self.writes.labels(kind=kind, verb=verb).inc()
