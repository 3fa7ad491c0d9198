"""Looks at a simulated agent as the operator does: every few episodes, at its newest returns."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.watch.curves import Curve
from learnloop_operator.core.anomalies.literal_rules import literal_anomalies
from learnloop_operator.core.anomalies.scale_free_rules import TAIL, watch

EVERY = 10
LATEST = 200
"""Episodes after which an anomaly that nobody saw was missed."""


@dataclass(frozen=True)
class Seen:
    """What looking at one agent showed.

    Attributes:
        false_alarm: an alarm before anything went wrong, or where nothing ever does.
        after: episodes from when it went wrong to the first alarm; None: never, or nothing was wrong.
        literal: an alarm of the specification's rules, false as above.
    """

    kind: str
    planted: bool
    false_alarm: bool
    after: int | None
    literal: bool


def look(curve: Curve) -> Seen:
    """Every look at one agent."""
    begins = len(curve.returns) if curve.begins is None else curve.begins
    false, literal, after = False, False, None
    for end in range(EVERY, min(len(curve.returns), begins + LATEST) + 1, EVERY):
        told = watch(curve.returns[max(0, end - TAIL) : end])
        if end <= begins:
            false = false or bool(told.findings)
            literal = literal or bool(literal_anomalies(curve.returns[:end]))
        elif told.findings:
            after = end - begins
            break
    return Seen(curve.kind, curve.begins is not None, false, after, literal)


def share(of: Sequence[bool]) -> float:
    """How many of these are true, 0 to 1."""
    return sum(of) / len(of) if of else 0.0
