"""Everything the data plane counts. One registry for each service, so that tests can have several."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from learnloop_common.telemetry.bounded_labels import OTHER, BoundedLabels, Labels
from learnloop_dataplane.telemetry.agent_metrics import SECONDS_BUCKETS, AgentMetrics, RunMetrics

Series = TypeVar("Series", Counter, Gauge)
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that nobody here reads


class Metrics:
    """Everything this process counts. Namespaces, agents, versions and runs are bounded; the rest is `_other`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.agents = AgentMetrics(self.registry)
        self.runs = RunMetrics(self.registry)
        self._namespaces = BoundedLabels(self._forget_namespace)
        self._told: defaultdict[str, set[tuple[Counter | Gauge, Labels]]] = defaultdict(set)
        """Series of each namespace."""
        self._budgets = BoundedLabels(self._forget_budget)
        pair = ("namespace", "agent")
        self._attempts = Counter(
            "agent_rl_trajectory_collection_attempts_total",
            "Trajectories that came to be stored, whatever became of them.",
            ("namespace",),
            registry=self.registry,
        )
        self._attempt_errors = Counter(
            "agent_rl_trajectory_collection_errors_total",
            "Of these, how many were not; reason: a dead letter's code, or invalid, no_room, over_quota, unavailable.",
            ("namespace", "reason"),
            registry=self.registry,
        )
        self._nats_up = Gauge(
            "learnloop_nats_up",
            "1 while this process is connected to NATS, 0 while it is not; no series where none is configured.",
            ("server",),
            registry=self.registry,
        )
        self._dead = Counter(
            "learnloop_dead_letters_total", "Refused messages by why.", ("namespace", "code"), registry=self.registry
        )
        self._notifications = Counter(
            "learnloop_notifications_total",
            "Attempts to send a notification; result: delivered, failed (tried again).",
            ("result",),
            registry=self.registry,
        )
        self._relay_refusals = Counter(
            "learnloop_relay_refusals_total",
            "Tenants' NATS messages not taken. reply: no own inbox; in_hand: too many at once; over_quota: a second.",
            ("namespace", "why"),
            registry=self.registry,
        )
        self._over_quota = Counter(
            "learnloop_quota_refusals_total",
            "What was refused because a namespace has its quota; quota: artifact_bytes, memories, episodes.",
            ("namespace", "quota"),
            registry=self.registry,
        )
        self._quota_used = Gauge(
            "learnloop_quota_used",
            "What a namespace with a quota had of it when it was last counted.",
            ("namespace", "quota"),
            registry=self.registry,
        )
        self._quota_limit = Gauge(
            "learnloop_quota_limit", "The quota itself.", ("namespace", "quota"), registry=self.registry
        )
        self._opted_out = Counter(
            "learnloop_opted_out_total", "Trajectories of users who opted out.", ("namespace",), registry=self.registry
        )
        self._warehoused = Counter(
            "learnloop_warehouse_episodes_total",
            "Episodes the warehouse acknowledged; one with a corrected reward counts again.",
            ("namespace",),
            registry=self.registry,
        )
        self._streams = {
            "limit": self._stream_gauge("limit_bytes", "Room in a stream."),
            "size": self._stream_gauge("bytes", "What a stream holds, read or not."),
            "full": self._stream_gauge("full_ratio", "The share of its room that is taken; what was read makes way."),
            "unread": self._stream_gauge("unread_messages", "Messages the data plane has not acknowledged yet."),
            "waiting": self._stream_gauge(
                "unread_ratio", "The share of its room that unread messages take; at 1 it refuses what is new."
            ),
        }
        self._no_room = Counter(
            "learnloop_stream_refusals_total",
            "Episodes refused with 503 because their namespace's unread ones fill the stream; their senders keep them.",
            ("namespace",),
            registry=self.registry,
        )
        self.warehouse_failures = Counter(
            "learnloop_warehouse_failures_total", "Passes the warehouse did not answer.", registry=self.registry
        )
        self.background_failures = Counter(
            "learnloop_background_failures_total",
            "Passes of background work that failed; each is tried again. A store that is away is not counted.",
            ("work",),
            registry=self.registry,
        )
        self._held = Gauge("learnloop_memory_held", "Memories of agents with a budget.", pair, registry=self.registry)
        self._held_bytes = Gauge(
            "learnloop_memory_held_bytes", "Bytes of memories of agents with a budget.", pair, registry=self.registry
        )
        self._forgotten = Counter(
            "learnloop_memory_forgotten_total", "Memories a budget made go.", pair, registry=self.registry
        )
        self.budgets_refused = Counter(
            "learnloop_memory_budgets_refused_total",
            "Reads of the file of agents' budgets that failed or found invalid ones; the last valid ones hold.",
            registry=self.registry,
        )
        self._consolidations = Counter(
            "learnloop_memory_consolidations_total",
            "Agents whose memory was consolidated without being asked.",
            ("namespace",),
            registry=self.registry,
        )
        self._consolidated = Counter(
            "learnloop_memory_consolidated_total",
            "What that ended (junk: duplicates and echoes) and made (distilled: facts and procedures).",
            ("namespace", "what"),
            registry=self.registry,
        )
        self._due = Gauge(
            "learnloop_memory_consolidations_due",
            "Agents with new memories whose turn it is.",
            ("namespace",),
            registry=self.registry,
        )
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

        self.vectors_up = Gauge(
            "learnloop_vector_store_up",
            "1 while the vector store takes what it is given, 0 while large agents are scanned.",
            registry=self.registry,
        )
        self._vectors_lag = Gauge(
            "learnloop_vector_store_lag_seconds",
            "For how long the vector store has lacked something of a namespace; nothing is lost, it takes it in later.",
            ("namespace",),
            registry=self.registry,
        )

    def _stream_gauge(self, what: str, told: str) -> Gauge:
        return Gauge(f"learnloop_stream_{what}", told, ("stream",), registry=self.registry)

    def render(self) -> bytes:
        """The text exposition format."""
        self.runs.sweep()
        return generate_latest(self.registry)

    def collected(self, namespace: str) -> None:
        """A trajectory came to be stored, and was, now or before."""
        self._of(self._attempts, namespace).inc()

    def not_collected(self, namespace: str, reason: str) -> None:
        """A trajectory came to be stored, and was not."""
        self._of(self._attempts, namespace).inc()
        self._of(self._attempt_errors, namespace, reason).inc()

    def nats(self, up: Callable[[], bool]) -> None:
        """From now on each scrape asks whether there is a connection to NATS."""
        self._nats_up.labels("jetstream").set_function(lambda: float(up()))

    def budget(self, namespace: str, agent: str, memories: int, size: int, forgotten: int) -> None:
        """An agent with a memory budget keeps this much, and this many memories went just now."""
        pair = self._budgets.admit((namespace, agent))
        if OTHER not in pair:  # what one of the strangers holds would say nothing
            self._held.labels(*pair).set(memories)
            self._held_bytes.labels(*pair).set(size)
        self._forgotten.labels(*pair).inc(forgotten)

    def recall(self, seconds: float) -> None:
        """A recall took so long."""
        self._recall.observe(seconds)
        self.agents.latency.observe(seconds)

    def consolidations_due(self, namespace: str, agents: int) -> None:
        """So many agents of this namespace wait to be consolidated."""
        self._tell(self._due, namespace, agents)

    def consolidated(self, namespace: str, junk: int, distilled: int) -> None:
        """An agent was consolidated: so many memories ended, and so many were made."""
        self._of(self._consolidations, namespace).inc()
        self._of(self._consolidated, namespace, "junk").inc(junk)
        self._of(self._consolidated, namespace, "distilled").inc(distilled)

    def vector_lag(self, namespace: str, lag: float) -> None:
        """For so many seconds the vector store has lacked something of this namespace."""
        self._tell(self._vectors_lag, namespace, lag)

    def stream(self, name: str, limit: int, size: int, unread: int, waiting: float) -> None:
        """How full one stream is: bytes it may hold and holds, messages unread, and the share of its room they take."""
        values = {"limit": limit, "size": size, "full": size / limit, "unread": unread, "waiting": waiting}
        for key, value in values.items():
            self._streams[key].labels(name).set(value)

    def no_room(self, namespace: str) -> None:
        """An episode was refused because its namespace fills the stream."""
        self._of(self._no_room, namespace).inc()

    def warehoused(self, namespace: str, episodes: int) -> None:
        """The warehouse has these episodes."""
        self._of(self._warehoused, namespace).inc(episodes)

    def over_quota(self, namespace: str, quota: str) -> None:
        """Something was refused."""
        self._of(self._over_quota, namespace, quota).inc()

    def quota(self, namespace: str, quota: str, used: int, limit: int | None) -> None:
        """How much of a quota is used; nothing is told where there is none."""
        if limit is not None:
            self._tell(self._quota_used, namespace, used, quota)
            self._tell(self._quota_limit, namespace, limit, quota)

    def opted_out(self, namespace: str) -> None:
        """A trajectory was not stored because its user opted out."""
        self._of(self._opted_out, namespace).inc()

    def notification(self, result: str) -> None:
        """Counts one attempt to send a notification."""
        self._notifications.labels(result).inc()

    def relay_refused(self, namespace: str, why: str) -> None:
        """A tenant's message was not taken from NATS."""
        self._of(self._relay_refusals, namespace, why).inc()

    def dead_letter(self, namespace: str, code: str) -> None:
        """A message was refused for good."""
        self._of(self._dead, namespace, code).inc()

    def _of(self, series: Series, namespace: str, *more: str) -> Series:
        """The series of a namespace, or that of all who have no room. `more`: labels that we choose ourselves."""
        labels = (*self._namespaces.admit((namespace,)), *more)
        self._told[labels[0]].add((series, labels))
        return series.labels(*labels)

    def _tell(self, gauge: Gauge, namespace: str, value: float, *more: str) -> None:
        """How one namespace stands; of those that have no room nothing, for the newest one's value is not theirs."""
        if OTHER not in self._namespaces.admit((namespace,)):
            self._of(gauge, namespace, *more).set(value)

    def _forget_namespace(self, labels: Labels) -> None:
        for series, told in self._told.pop(labels[0], ()):
            series.remove(*told)

    def _forget_budget(self, pair: Labels) -> None:
        for series in (self._held, self._held_bytes, self._forgotten):
            with suppress(KeyError):
                series.remove(*pair)
