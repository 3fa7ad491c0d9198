"""Prometheus metrics of a policy server and of shadow mode; their names are in the contract."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import EPISODE_SECONDS_BUCKETS

_ARM = ("model_deployment", "revision")
_MAX_REVISIONS = 64


class ShadowMetrics:
    """Counts of the arm in shadow, and stable's counts of copies that did not arrive."""

    def __init__(
        self,
        registry: CollectorRegistry,
        model_deployment: str,
        revision: str,
        buckets: tuple[float, ...],
        unproven: Counter,
    ) -> None:
        self.unproven = unproven
        self._deployment, self._lost_of = model_deployment, set[str]()
        own = (model_deployment, revision)

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, _ARM, registry=registry).labels(*own)

        self.compared = counter(names.METRIC_SHADOW_COMPARED, "Copies whose answer was compared with stable's")
        self.agreed = counter(names.METRIC_SHADOW_AGREED, "Compared copies with the same greedy action")
        self.errors = counter(names.METRIC_SHADOW_ERRORS, "Copies this arm's policy failed on")
        self.observe = (
            Histogram(
                names.METRIC_SHADOW_SECONDS,
                "Time the policy took for a copy",
                _ARM,
                buckets=buckets,
                registry=registry,
            )
            .labels(*own)
            .observe
        )
        self._lost = Counter(
            names.METRIC_SHADOW_LOST,
            "Copies that never reached the arm in shadow",
            (*_ARM, "reason"),
            registry=registry,
        )

    def lost(self, revision: str, reason: str, count: int) -> None:
        """`count` copies for `revision` went nowhere."""
        if revision not in self._lost_of:
            if len(self._lost_of) >= _MAX_REVISIONS:
                return
            self._lost_of.add(revision)
        self._lost.labels(self._deployment, revision, reason).inc(count)


VERBS = ("open", "act", "end", "infer")
OUTCOMES = ("success", "failure", "error", "withdrawn")
_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LANGUAGE_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""Seconds of a request to a language model."""
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_SIZES = (0.1, 0.2, 0.5, *(step * 10.0**decade for decade in range(3) for step in _STEPS), 1000.0, 2000.0, 5000.0)
RETURN_BUCKETS = (*(-size for size in reversed(_SIZES)), 0.0, *_SIZES)
"""Where returns of any sign and size can be told apart: six bounds in each power of ten."""
_APART = {
    "open": ("invalid", "overridden"),
    "act": ("invalid", "again", "overridden", "throttled"),
    "end": ("invalid",),
    "infer": ("invalid", "overridden", "throttled"),
}
"""Why requests are no evidence, by verb."""
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that nobody here reads


class Metrics:
    """Counters of one server. Series of its own revision exist from the start, at 0."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, model_deployment: str, revision: str, buckets: Sequence[float] = _BUCKETS) -> None:
        """`buckets`: seconds that requests are sorted by."""
        self.registry = CollectorRegistry()
        self._own = (model_deployment, revision)
        self._opened = Counter(
            names.METRIC_EPISODES_OPENED, "Episodes given to this revision by this server", _ARM, registry=self.registry
        )
        self._ended = Counter(
            names.METRIC_EPISODES_ENDED, "Episodes ended at this server", (*_ARM, "outcome"), registry=self.registry
        )
        gain = Counter(
            names.METRIC_EPISODE_RETURN_GAIN, "Sum of positive episode returns", _ARM, registry=self.registry
        )
        loss = Counter(
            names.METRIC_EPISODE_RETURN_LOSS, "Sum of |negative episode returns|", _ARM, registry=self.registry
        )
        self._returns = Histogram(
            names.METRIC_EPISODE_RETURN,
            "Returns of ended episodes that were not withdrawn",
            _ARM,
            buckets=RETURN_BUCKETS,
            registry=self.registry,
        ).labels(model_deployment, revision)
        self._lasted = Histogram(
            names.METRIC_EPISODE_SECONDS,
            "Time from the opening of an episode to its end",
            _ARM,
            buckets=EPISODE_SECONDS_BUCKETS,
            registry=self.registry,
        ).labels(model_deployment, revision)
        seconds = Histogram(
            names.METRIC_REQUEST_SECONDS,
            "Time this server needed for a request",
            (*_ARM, "verb"),
            buckets=buckets,
            registry=self.registry,
        )
        errors = Counter(
            names.METRIC_REQUEST_ERRORS,
            "Requests that failed because of this server or its policy",
            (*_ARM, "verb"),
            registry=self.registry,
        )
        self._gauges(model_deployment, revision)
        unproven = Counter(
            names.METRIC_UNPROVEN,
            "Requests of episodes that no server had opened, and copies that none had sent: never evidence",
            (*_ARM, "verb"),
            registry=self.registry,
        )
        self.unproven = {verb: unproven.labels(*self._own, verb) for verb in ("act", "end", "shadow")}
        uncounted = Counter(
            names.METRIC_ENDINGS_UNCOUNTED,
            "Endings of this arm's episodes that are no evidence: ended before, or opened too long ago",
            (*_ARM, "reason"),
            registry=self.registry,
        )
        apart = Counter(
            names.METRIC_REQUESTS_UNCOUNTED,
            "Requests that are no evidence: no policy could answer them, their episode has failed before, a person "
            "decided in the policy's place, or spec.decisionLimits was reached",
            (*_ARM, "verb", "reason"),
            registry=self.registry,
        )
        self.apart = {
            (verb, reason): apart.labels(*self._own, verb, reason) for verb in VERBS for reason in _APART[verb]
        }
        strangers = Counter(
            names.METRIC_CALLERS_REFUSED,
            "Requests of callers without a token that holds, or of other namespaces",
            (*_ARM, "reason"),
            registry=self.registry,
        )
        self.strangers = {
            reason: strangers.labels(*self._own, reason) for reason in ("Unauthorized", "Forbidden", "NotReady")
        }
        self.uncounted = {reason: uncounted.labels(*self._own, reason) for reason in ("again", "late")}
        self.shadow = ShadowMetrics(self.registry, model_deployment, revision, _BUCKETS, self.unproven["shadow"])
        self._gain, self._loss = gain.labels(*self._own), loss.labels(*self._own)
        self._opened.labels(*self._own)
        self._outcomes = {outcome: self._ended.labels(*self._own, outcome) for outcome in OUTCOMES}
        self._errors = {verb: errors.labels(*self._own, verb) for verb in VERBS}
        self.observe: dict[str, Callable[[float], None]] = {
            verb: seconds.labels(*self._own, verb).observe for verb in VERBS
        }
        self._revisions = [revision]

    def _gauges(self, model_deployment: str, revision: str) -> None:
        own = (model_deployment, revision)
        self.routing_generation = Gauge(
            "learnloop_routing_generation",
            "Generation of the routing table in force, -1 before the first",
            _ARM,
            registry=self.registry,
        ).labels(*own)
        self.routing_generation.set(-1)
        self.started = Gauge(
            names.METRIC_SERVER_STARTED,
            "When this process began to count, Unix time; another value is another process",
            _ARM,
            registry=self.registry,
        ).labels(*own)
        self.started.set_to_current_time()
        self.routing_errors = Counter(
            "learnloop_routing_errors_total",
            "Routing tables refused and watches that broke; the last good table stays in force",
            (*_ARM, "kind"),
            registry=self.registry,
        )
        self.routing_broken = self.routing_errors.labels(*own, "table")
        self.routing_watch_failed = self.routing_errors.labels(*own, "watch")
        self.model_load_seconds = Gauge(
            "learnloop_model_load_seconds", "Time from start until the policy was loaded", _ARM, registry=self.registry
        ).labels(*own)

    def opened(self, revision: str) -> None:
        """An episode was given to `revision`, which in service mode need not be this server's own."""
        if revision not in self._revisions:
            if len(self._revisions) >= _MAX_REVISIONS:  # never grow without bound: the longest known, but its own, goes
                self._opened.remove(self._own[0], self._revisions.pop(1))
            self._revisions.append(revision)
        self._opened.labels(self._own[0], revision).inc()

    def ended(self, outcome: str, episode_return: float, seconds: float) -> None:
        """An episode of this server's own revision ended, `seconds` after it was opened.

        The return of a withdrawn one is not counted: it was cut off, or a person or a limit had a part in it.
        """
        self._outcomes[outcome].inc()
        self._lasted.observe(max(0.0, seconds))
        if outcome == "withdrawn":
            return
        self._returns.observe(episode_return)
        if episode_return >= 0:
            self._gain.inc(episode_return)
        else:
            self._loss.inc(-episode_return)

    def failed(self, verb: str) -> None:
        """A request failed because of the server or its policy, not because of its caller."""
        self._errors[verb].inc()

    def render(self) -> bytes:
        """Prometheus text format 0.0.4."""
        return generate_latest(self.registry)
