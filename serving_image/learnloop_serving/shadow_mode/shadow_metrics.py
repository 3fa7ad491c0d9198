"""Counters of shadow mode, all labelled with the revision in shadow; names are the contract's."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from learnloop_api import names
from learnloop_serving.shadow_mode.importance_weights import Use

SOURCES = ("server", "gateway")
USES = ("counted", "incomplete", "deterministic", "unfinished")
_ARM = ("model_deployment", "revision")
_MAX_REVISIONS = 64


class ShadowMetrics:
    """What the arm in shadow counts, and what stable counts of copies that never got there."""

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

        def counters(name: str, text: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
            family = Counter(name, text, (*_ARM, label), registry=registry)
            return {value: family.labels(*own, value) for value in values}

        self.compared = counter(names.METRIC_SHADOW_COMPARED, "Copies whose answer was compared with stable's")
        self.agreed = counter(names.METRIC_SHADOW_AGREED, "Compared copies with the same greedy action")
        self.errors = counter(names.METRIC_SHADOW_ERRORS, "Copies this arm's policy failed on")
        self.copies = counters(names.METRIC_SHADOW_COPIES, "Copies that arrived, by who made them", "source", SOURCES)
        self.observe = (
            Histogram(
                names.METRIC_SHADOW_SECONDS, "Time the policy took for a copy", _ARM, buckets=buckets, registry=registry
            )
            .labels(*own)
            .observe
        )
        self._uses = counters(names.METRIC_SHADOW_EPISODES, "Copied episodes, by what they are good for", "use", USES)
        self._weight = counter(names.METRIC_SHADOW_WEIGHT, "Sum of importance weights")
        self._squares = counter(names.METRIC_SHADOW_WEIGHT_SQUARES, "Sum of squared importance weights")
        self._weighted = (
            counter(names.METRIC_SHADOW_WEIGHTED_GAIN, "Sum of weight times positive return"),
            counter(names.METRIC_SHADOW_WEIGHTED_LOSS, "Sum of weight times |negative return|"),
        )
        self._spread = (
            counter(names.METRIC_SHADOW_SQUARES_GAIN, "Sum of squared weight times positive return"),
            counter(names.METRIC_SHADOW_SQUARES_LOSS, "Sum of squared weight times |negative return|"),
        )
        self._square = counter(names.METRIC_SHADOW_SQUARES_SQUARES, "Sum of squared weight times squared return")
        self._plain = (
            counter(names.METRIC_SHADOW_GAIN, "Sum of positive returns of the counted episodes"),
            counter(names.METRIC_SHADOW_LOSS, "Sum of |negative returns| of the counted episodes"),
        )
        self._lost = Counter(
            names.METRIC_SHADOW_LOST,
            "Copies that never reached the arm in shadow",
            (*_ARM, "reason"),
            registry=registry,
        )

    def played(self, use: Use, weight: float, episode_return: float) -> None:
        """An episode that stable played has ended."""
        self._uses[use].inc()
        if use != "counted":
            return
        self._weight.inc(weight)
        self._squares.inc(weight * weight)
        side = 0 if episode_return >= 0 else 1
        self._weighted[side].inc(weight * abs(episode_return))
        self._spread[side].inc(weight * weight * abs(episode_return))
        self._square.inc((weight * episode_return) ** 2)
        self._plain[side].inc(abs(episode_return))

    def lost(self, revision: str, reason: str, count: int) -> None:
        """`count` copies for `revision` went nowhere."""
        if revision not in self._lost_of:
            if len(self._lost_of) >= _MAX_REVISIONS:
                return
            self._lost_of.add(revision)
        self._lost.labels(self._deployment, revision, reason).inc(count)
