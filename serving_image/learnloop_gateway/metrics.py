"""Metrics of a gateway, in addition to those of every policy server."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from learnloop_api import names

RECORDED = ("tokens", "text", "nothing")
ROWS = ("first", "history", "tools", "template", "stop", "restart", "elsewhere", "parallel", "fallback")
"""Why a row of tokens began; first: the conversation did."""
_FIRST = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ARM = ("model_deployment", "revision")


class LanguageMetrics:
    """Counters of the conversations that this process answers."""

    def __init__(self, registry: CollectorRegistry, model_deployment: str, revision: str) -> None:
        own = (model_deployment, revision)
        turns = Counter(
            names.METRIC_LANGUAGE_TURNS,
            "Answers of this arm, by what was recorded of them",
            (*_ARM, "recorded"),
            registry=registry,
        )
        rows = Counter(
            names.METRIC_LANGUAGE_ROWS,
            "Rows of tokens begun: prompts that did not go on with the tokens before, by why",
            (*_ARM, "reason"),
            registry=registry,
        )
        tokens = Counter(
            names.METRIC_LANGUAGE_TOKENS, "Tokens of prompts and of answers", (*_ARM, "direction"), registry=registry
        )
        fallbacks = Counter(
            names.METRIC_LANGUAGE_FALLBACKS,
            "Requests that the fallback was asked, as no arm answered: never evidence, never recorded",
            (*_ARM, "outcome"),
            registry=registry,
        )
        self.turns = {kind: turns.labels(*own, kind) for kind in RECORDED}
        self.rows = {reason: rows.labels(*own, reason) for reason in ROWS}
        self.tokens = {direction: tokens.labels(*own, direction) for direction in ("asked", "said")}
        self.fallbacks = {outcome: fallbacks.labels(*own, outcome) for outcome in ("answered", "failed")}
        self.first = Histogram(
            names.METRIC_LANGUAGE_FIRST,
            "Time from a request to the first token of its answer",
            _ARM,
            buckets=_FIRST,
            registry=registry,
        ).labels(*own)
        self.throttled = Counter(
            names.METRIC_LANGUAGE_THROTTLED, "Requests answered with 429", _ARM, registry=registry
        ).labels(*own)
