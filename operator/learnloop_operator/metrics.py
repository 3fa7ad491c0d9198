"""The operator's own Prometheus metrics. Prometheus adds the pod and namespace."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

from learnloop_operator.loop_metrics import LoopMetrics

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class OperatorMetrics:
    """One registry for one operator process (a second one in the same process, as in tests, does not clash)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.loop = LoopMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.reconciles = Counter(
            "learnloop_reconcile",
            "Passes over objects; result: ok, gone, error, held (data plane), not_leading",
            ["kind", "result"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "learnloop_reconcile_seconds",
            "Duration of one pass: gather, decide, apply",
            ["kind"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.depth = Gauge("learnloop_queue_depth", "Objects waiting for a pass", registry=self.registry)
        self.lag = Gauge(
            "learnloop_watch_lag_seconds",
            "Seconds since the last event that a watch should have delivered; source: lease, or a kind",
            ["source"],
            registry=self.registry,
        )
        self.cuts = Counter(
            "learnloop_watch_cut",
            "Watches and lists that broke off or failed, and were asked for again",
            ["resource"],
            registry=self.registry,
        )
        self.writes = Counter(
            "learnloop_api_writes", "Writes sent to the API server", ["kind", "verb"], registry=self.registry
        )
        self._fast_lane()
        self.decisions = Counter(
            "learnloop_decisions",
            "What people decided by annotation; outcome: obeyed, ignored, refused",
            ["kind", "verb", "outcome"],
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "learnloop_certificate_expiry_timestamp_seconds",
            "When the operator's certificate ends, which is renewed with those of all parts, Unix time; 0 without TLS.",
            registry=self.registry,
        )
        self.leader = Gauge("learnloop_leader", "1 while this process holds the Lease", registry=self.registry)

    def _fast_lane(self) -> None:
        self.lane_looks = Counter(
            "learnloop_fast_lane_looks",
            "Looks at the pods of one arm; result: ok, some (not of all of them), PodsUnreachable, CountersUnusable",
            ["result"],
            registry=self.registry,
        )
        self.lane_arms = Gauge("learnloop_fast_lane_arms", "Arms whose pods are read", registry=self.registry)
        self.lane_seconds = Histogram(
            "learnloop_fast_lane_breach_to_rollback_seconds",
            "From the look that showed a gross breach until the rollback was written and read again",
            buckets=BUCKETS,
            registry=self.registry,
        )

    def cut(self, plural: str) -> None:
        """Count one answer that broke off."""
        self.cuts.labels(resource=plural).inc()

    def written(self, verb: str, kind: str) -> None:
        """Count one write (the client's callback)."""
        self.writes.labels(kind=kind, verb=verb).inc()
