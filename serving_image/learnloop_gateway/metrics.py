"""Metrics of a gateway, in addition to those of every policy server."""

from learnloop_api import names
from learnloop_serving.metrics import Families

RECORDED = ("tokens", "text", "nothing")
ROWS = ("first", "history", "tools", "template", "stop", "restart", "elsewhere", "parallel", "fallback")
"""Why a row of tokens began; first: the conversation did."""
_FIRST = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class LanguageMetrics:
    """Counters of the conversations that this process answers."""

    def __init__(self, of: Families) -> None:
        self.turns = of.counters(
            names.METRIC_LANGUAGE_TURNS, "Answers of this arm, by what was recorded of them", "recorded", RECORDED
        )
        self.rows = of.counters(
            names.METRIC_LANGUAGE_ROWS,
            "Rows of tokens begun: prompts that did not continue the tokens before, by reason",
            "reason",
            ROWS,
        )
        self.tokens = of.counters(
            names.METRIC_LANGUAGE_TOKENS, "Tokens of prompts and of answers", "direction", ("asked", "said")
        )
        self.fallbacks = of.counters(
            names.METRIC_LANGUAGE_FALLBACKS,
            "Requests that the fallback was asked, as no arm answered: never evidence, never recorded",
            "outcome",
            ("answered", "failed"),
        )
        self.first = of.histogram(
            names.METRIC_LANGUAGE_FIRST, "Time from a request to the first token of its answer", _FIRST
        )
        self.throttled = of.counter(names.METRIC_LANGUAGE_THROTTLED, "Requests answered with 429")
