"""Everything the data plane counts. One registry for each service, so that tests can have several."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from learnloop_common.bounded_labels import OTHER, BoundedLabels, Labels
from learnloop_dataplane.telemetry.agent_metrics import SECONDS_BUCKETS, AgentMetrics, RunMetrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that nothing here reads
NAMESPACE, AGENT = ("namespace",), ("namespace", "agent")
COUNTERS: dict[str, tuple[str, Labels, str]] = {
    "attempts": (
        "agent_rl_trajectory_collection_attempts",
        NAMESPACE,
        "Trajectories that came to be stored, whatever became of them.",
    ),
    "attempt_errors": (
        "agent_rl_trajectory_collection_errors",
        ("namespace", "reason"),
        "Of these, how many were not; reason: a refused message's code, or invalid, no_room, over_quota, unavailable.",
    ),
    "refused": ("learnloop_refused_messages", ("namespace", "code"), "Refused messages by why."),
    "notifications": (
        "learnloop_notifications",
        ("result",),
        "Attempts to send a notification; result: delivered, failed (tried again).",
    ),
    "relay_refusals": (
        "learnloop_relay_refusals",
        ("namespace", "why"),
        "Tenants' NATS messages not taken. reply: no own inbox; in_hand: too many at a time; over_quota: a second.",
    ),
    "quota_refusals": (
        "learnloop_quota_refusals",
        ("namespace", "quota"),
        "Refusals because a namespace has its quota; quota: artifact_bytes, memories, episodes.",
    ),
    "opted_out": ("learnloop_opted_out", NAMESPACE, "Trajectories of users who opted out."),
    "warehoused": (
        "learnloop_warehouse_episodes",
        NAMESPACE,
        "Episodes the warehouse acknowledged; one with a corrected reward counts again.",
    ),
    "no_room": (
        "learnloop_stream_refusals",
        NAMESPACE,
        "Episodes refused with 503 because their namespace's unread ones fill the stream; their senders keep them.",
    ),
    "warehouse_failures": ("learnloop_warehouse_failures", (), "Passes the warehouse did not answer."),
    "background_failures": (
        "learnloop_background_failures",
        ("work",),
        "Passes of background work that failed; each is tried again. A store that is away is not counted.",
    ),
    "forgotten": ("learnloop_memory_forgotten", AGENT, "Memories a budget made go."),
    "budgets_refused": (
        "learnloop_memory_budgets_refused",
        (),
        "Reads of the file of agents' budgets that failed or found invalid ones; the last valid ones hold.",
    ),
    "consolidations": (
        "learnloop_memory_consolidations",
        NAMESPACE,
        "Agents whose memory was consolidated without being asked.",
    ),
    "consolidated": (
        "learnloop_memory_consolidated",
        ("namespace", "what"),
        "What that ended (junk: duplicates and echoes) and made (distilled: facts and procedures).",
    ),
}
"""Name, labels and help, by what the code calls it."""
STREAM = ("stream",)
GAUGES: dict[str, tuple[str, Labels, str]] = {
    "nats_up": (
        "learnloop_nats_up",
        ("server",),
        "1 while this process is connected to NATS, 0 while it is not; no series where none is configured.",
    ),
    "quota_used": (
        "learnloop_quota_used",
        ("namespace", "quota"),
        "What a namespace with a quota had of it when it was last counted.",
    ),
    "quota_limit": ("learnloop_quota_limit", ("namespace", "quota"), "The quota itself."),
    "limit": ("learnloop_stream_limit_bytes", STREAM, "Room in a stream."),
    "size": ("learnloop_stream_bytes", STREAM, "Bytes of the messages in a stream."),
    "unread": ("learnloop_stream_unread_messages", STREAM, "Messages the data plane has not acknowledged yet."),
    "waiting": (
        "learnloop_stream_unread_ratio",
        STREAM,
        "The share of its room that unread messages take; at 1 it refuses what is new.",
    ),
    "held": ("learnloop_memory_held", AGENT, "Memories of agents with a budget."),
    "held_bytes": ("learnloop_memory_held_bytes", AGENT, "Bytes of memories of agents with a budget."),
    "due": ("learnloop_memory_consolidations_due", NAMESPACE, "Agents with new memories whose turn it is."),
    "vectors_up": (
        "learnloop_vector_store_up",
        (),
        "1 while the vector store takes what it is given, 0 while large agents are scanned.",
    ),
    "without_vector": ("learnloop_embedder_texts_without_vector", (), "Texts that the embedder refused for an hour."),
    "embedder_refused": (
        "learnloop_embedder_refused_namespaces",
        (),
        "Namespaces that keep the embedder before: the new one finds less of their agents' own questions.",
    ),
}


class Metrics:
    """Everything this process counts. Namespaces, agents, versions and runs are bounded; the rest is `_other`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.agents = AgentMetrics(self.registry)
        self.runs = RunMetrics(self.registry)
        self._namespaces = BoundedLabels(self._forget_namespace)
        self._budgets = BoundedLabels(self._forget_budget)
        self._counters = {
            key: Counter(name, text, labels, registry=self.registry) for key, (name, labels, text) in COUNTERS.items()
        }
        self._gauges = {
            key: Gauge(name, text, labels, registry=self.registry) for key, (name, labels, text) in GAUGES.items()
        }
        self.warehouse_failures = self._counters["warehouse_failures"]
        self.background_failures = self._counters["background_failures"]
        self.budgets_refused = self._counters["budgets_refused"]
        self.vectors_up = self._gauges["vectors_up"]
        self.without_vector = self._gauges["without_vector"]
        self.embedder_refused = self._gauges["embedder_refused"]
        self.requests = Histogram(
            "learnloop_data_request_duration_seconds",
            "Time from a request to its answer, by route.",
            ("route", "method", "status"),
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._recall = Histogram(
            "learnloop_memory_recall_duration_seconds",
            "Recalls, database included.",
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )

    def render(self) -> bytes:
        self.runs.sweep()
        return generate_latest(self.registry)

    def count(self, counter: str, *labels: str, by: int = 1) -> None:
        """Counts an event of `COUNTERS` by its labels; `_other` stands for a namespace that has no series."""
        if labels and COUNTERS[counter][1][0] == "namespace":
            labels = (*self._namespaces.admit(labels[:1]), *labels[1:])
        self._counters[counter].labels(*labels).inc(by)

    def not_collected(self, namespace: str, reason: str) -> None:
        """Counts a trajectory that was not stored."""
        self.count("attempts", namespace)
        self.count("attempt_errors", namespace, reason)

    def nats(self, up: Callable[[], bool]) -> None:
        """Each scrape calls `up` for the connection to NATS."""
        self._gauges["nats_up"].labels("jetstream").set_function(lambda: float(up()))

    def budget(self, namespace: str, agent: str, memories: int, size: int, forgotten: int) -> None:
        """Records what an agent with a memory budget keeps, and how many memories went."""
        pair = self._budgets.admit((namespace, agent))
        if OTHER not in pair:
            self._gauges["held"].labels(*pair).set(memories)
            self._gauges["held_bytes"].labels(*pair).set(size)
        self._counters["forgotten"].labels(*pair).inc(forgotten)

    def recall(self, seconds: float) -> None:
        """Records the time of a recall."""
        self._recall.observe(seconds)
        self.agents.latency.observe(seconds)

    def consolidations_due(self, namespace: str, agents: int) -> None:
        """Records how many agents of a namespace wait to be consolidated."""
        self._tell("due", namespace, agents)

    def consolidated(self, namespace: str, junk: int, distilled: int) -> None:
        """Counts a consolidation, the memories that it ended and those that it made."""
        self.count("consolidations", namespace)
        self.count("consolidated", namespace, "junk", by=junk)
        self.count("consolidated", namespace, "distilled", by=distilled)

    def stream(self, name: str, limit: int, size: int, unread: int) -> None:
        """Records a work queue: the bytes it may hold and holds, and its messages."""
        values = {"limit": limit, "size": size, "unread": unread, "waiting": size / limit}
        for key, value in values.items():
            self._gauges[key].labels(name).set(value)

    def quota(self, namespace: str, quota: str, used: int, limit: int | None) -> None:
        """Records how much of a quota is used."""
        if limit is not None:
            self._tell("quota_used", namespace, used, quota)
            self._tell("quota_limit", namespace, limit, quota)

    def _tell(self, gauge: str, namespace: str, value: float, *more: str) -> None:
        """Sets a namespace's gauge; namespaces that share `_other` have none."""
        if OTHER not in self._namespaces.admit((namespace,)):
            self._gauges[gauge].labels(namespace, *more).set(value)

    def _forget_namespace(self, labels: Labels) -> None:
        self._forget(NAMESPACE, labels, lambda names: names[:1] == NAMESPACE and names != AGENT)

    def _forget_budget(self, pair: Labels) -> None:
        self._forget(AGENT, pair, lambda names: names == AGENT)

    def _forget(self, names: Labels, values: Labels, of: Callable[[Labels], bool]) -> None:
        """Removes the series with these labels, of the metrics that have such labels."""
        labels = dict(zip(names, values, strict=True))
        for table, series in ((COUNTERS, self._counters), (GAUGES, self._gauges)):
            for key, collector in series.items():
                if of(table[key][1]):
                    collector.remove_by_labels(labels)
