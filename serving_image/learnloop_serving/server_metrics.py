"""Prometheus metrics of a policy server and of shadow mode; their names are in the contract."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import EPISODE_SECONDS_BUCKETS

ARM = ("model_deployment", "revision")
_MAX_REVISIONS = 64
VERBS = ("open", "act", "end", "infer")
OUTCOMES = ("success", "failure", "error", "withdrawn")
_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LANGUAGE_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""Seconds of a request to a language model."""
_APART = {
    "open": ("invalid", "overridden"),
    "act": ("invalid", "again", "overridden", "throttled"),
    "end": ("invalid",),
    "infer": ("invalid", "overridden", "throttled"),
}
"""Reasons why requests are not evidence, by verb."""
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that is not used here


class Families:
    """Makes metrics of one arm, labelled with it."""

    def __init__(self, registry: CollectorRegistry, model_deployment: str, revision: str) -> None:
        self._registry, self._own = registry, (model_deployment, revision)

    def family(self, name: str, text: str, *labels: str) -> Counter:
        """A counter whose labels are still to be given."""
        return Counter(name, text, (*ARM, *labels), registry=self._registry)

    def counter(self, name: str, text: str) -> Counter:
        return self.family(name, text).labels(*self._own)

    def counters(self, name: str, text: str, label: str, values: Sequence[str]) -> dict[str, Counter]:
        """A counter for each value of a label."""
        family = self.family(name, text, label)
        return {value: family.labels(*self._own, value) for value in values}

    def gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ARM, registry=self._registry).labels(*self._own)

    def histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return self.histograms(name, text, buckets).labels(*self._own)

    def histograms(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """A histogram whose labels are still to be given."""
        return Histogram(name, text, (*ARM, *labels), buckets=buckets, registry=self._registry)


class ShadowMetrics:
    """Counts of the arm in shadow, and stable's counts of copies that did not arrive."""

    def __init__(self, of: Families, model_deployment: str, unproven: Counter) -> None:
        self.unproven = unproven
        self._deployment, self._lost_of = model_deployment, set[str]()
        self.compared = of.counter(names.METRIC_SHADOW_COMPARED, "Copies whose answer was compared with stable's")
        self.agreed = of.counter(names.METRIC_SHADOW_AGREED, "Compared copies with the same greedy action")
        self.errors = of.counter(names.METRIC_SHADOW_ERRORS, "Copies this arm's policy failed on")
        self.observe = of.histogram(names.METRIC_SHADOW_SECONDS, "Time the policy took for a copy", _BUCKETS).observe
        self._lost = of.family(names.METRIC_SHADOW_LOST, "Copies that never reached the arm in shadow", "reason")

    def lost(self, revision: str, reason: str, count: int) -> None:
        """`count` copies for `revision` were lost."""
        if revision not in self._lost_of:
            if len(self._lost_of) >= _MAX_REVISIONS:
                return
            self._lost_of.add(revision)
        self._lost.labels(self._deployment, revision, reason).inc(count)


class Metrics:
    """Counters of one server. Series of its own revision exist from the start, at 0."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, model_deployment: str, revision: str, buckets: Sequence[float] = _BUCKETS) -> None:
        """`buckets`: seconds of requests."""
        self.registry = CollectorRegistry()
        self._own = own = (model_deployment, revision)
        of = self.of = Families(self.registry, model_deployment, revision)
        self._opened = of.family(names.METRIC_EPISODES_OPENED, "Episodes given to this revision by this server")
        self._opened.labels(*own)
        self._revisions = [revision]
        self._outcomes = of.counters(names.METRIC_EPISODES_ENDED, "Episodes ended at this server", "outcome", OUTCOMES)
        self._gain = of.counter(names.METRIC_EPISODE_RETURN_GAIN, "Sum of positive episode returns")
        self._loss = of.counter(names.METRIC_EPISODE_RETURN_LOSS, "Sum of |negative episode returns|")
        self._lasted = of.histogram(
            names.METRIC_EPISODE_SECONDS, "Time from the opening of an episode to its end", EPISODE_SECONDS_BUCKETS
        )
        seconds = of.histograms(names.METRIC_REQUEST_SECONDS, "Time this server needed for a request", buckets, "verb")
        self.observe: dict[str, Callable[[float], None]] = {v: seconds.labels(*own, v).observe for v in VERBS}
        self._errors = of.counters(
            names.METRIC_REQUEST_ERRORS, "Requests that failed because of this server or its policy", "verb", VERBS
        )
        self.unproven = of.counters(
            names.METRIC_UNPROVEN,
            "Requests of episodes that no server had opened, and copies that none had sent: never evidence",
            "verb",
            ("act", "end", "shadow"),
        )
        self.uncounted = of.counters(
            names.METRIC_ENDINGS_UNCOUNTED,
            "Endings of this arm's episodes that are not evidence: ended before, or opened too long ago",
            "reason",
            ("again", "late"),
        )
        apart = of.family(
            names.METRIC_REQUESTS_UNCOUNTED,
            "Requests that are not evidence: no policy could answer them, their episode has failed before, a person "
            "decided in the policy's place, or spec.decisionLimits was reached",
            "verb",
            "reason",
        )
        self.apart = {(verb, why): apart.labels(*own, verb, why) for verb in VERBS for why in _APART[verb]}
        self.strangers = of.counters(
            names.METRIC_CALLERS_REFUSED,
            "Requests of callers without a valid token, or of other namespaces",
            "reason",
            ("Unauthorized", "Forbidden", "NotReady"),
        )
        self.interventions = of.counter(names.METRIC_INTERVENTIONS, "Actions that the policy's safety shield replaced")
        self.shadow = ShadowMetrics(of, model_deployment, self.unproven["shadow"])
        self.routing_generation = of.gauge(
            "learnloop_routing_generation", "Generation of the routing table in force, -1 before the first"
        )
        self.routing_generation.set(-1)
        of.gauge(
            names.METRIC_SERVER_STARTED, "When this process began to count, Unix time; another value is another process"
        ).set_to_current_time()
        routing = of.counters(
            "learnloop_routing_errors_total",
            "Routing tables refused and watches that broke; the last good table stays in force",
            "kind",
            ("table", "watch"),
        )
        self.routing_broken, self.routing_watch_failed = routing["table"], routing["watch"]
        self.model_load_seconds = of.gauge(
            "learnloop_model_load_seconds", "Time from start until the policy was loaded"
        )

    def opened(self, revision: str) -> None:
        """Count an episode of `revision`, which in service mode may be another server's."""
        if revision not in self._revisions:
            if len(self._revisions) >= _MAX_REVISIONS:  # bounded: the oldest other one goes
                self._opened.remove(self._own[0], self._revisions.pop(1))
            self._revisions.append(revision)
        self._opened.labels(self._own[0], revision).inc()

    def ended(self, outcome: str, episode_return: float, seconds: float) -> None:
        """Count the end of an episode of this server's revision, `seconds` after it was opened.

        The return of a withdrawn one is not counted: it was cut off, or a person or a limit had a part in it.
        """
        self._outcomes[outcome].inc()
        self._lasted.observe(max(0.0, seconds))
        if outcome == "withdrawn":
            return
        if episode_return >= 0:
            self._gain.inc(episode_return)
        else:
            self._loss.inc(-episode_return)

    def failed(self, verb: str) -> None:
        """Count a request that failed because of the server or its policy."""
        self._errors[verb].inc()

    def render(self) -> bytes:
        """Prometheus text format 0.0.4."""
        return generate_latest(self.registry)
