"""Rules for returns of any sign and scale: what they say depends on the order of the returns alone.

The bars aim at alarms in at most 1 % of quiet runs of 1,000 episodes that are looked at after every ten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from learnloop_operator.core.anomalies.literal_rules import literal_anomalies
from learnloop_operator.core.anomalies.rank_tests import rank_sum, trend

Anomaly = Literal["SuddenDrop", "Instability", "SlowDecline"]
TAIL = 200
"""Newest returns that are looked at."""
LEAST = 51
NEWEST, BLOCK, STRIDE = 10, 40, 10
DROP_BAR, SPREAD_BAR, DECLINE_BAR = 4.45, 4.6, 5.0
TIED_BAR, FEW_VALUES = 5.3, 0.75
"""Where fewer than three of four returns differ (successes, a limit that most reach), ranks are far from normal."""
LATE = 50
"""Newest returns whose spread is compared with that of those before."""
LEARNING_BAR = 2.0
GROUP = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, and a sentence with its figures."""

    anomaly: Anomaly
    sentence: str


@dataclass(frozen=True, slots=True)
class ReturnAnomalies:
    """Anomalies in the returns of one run or arm."""

    returns: int
    findings: tuple[Finding, ...] = ()
    literal: tuple[str, ...] = ()
    """What the specification's own rules say, in its words."""


def watch(returns: Sequence[float]) -> ReturnAnomalies:
    """Looks at the newest returns, oldest first."""
    tail = list(returns[-TAIL:])
    if len(tail) < LEAST:
        return ReturnAnomalies(len(tail))
    result = (sudden_drop(tail), instability(tail), slow_decline(tail))
    return ReturnAnomalies(len(tail), tuple(item for item in result if item), literal_anomalies(tail))


def sudden_drop(tail: Sequence[float]) -> Finding | None:
    """The newest ten rank below forty that came one after the other, anywhere before them: so a drop is seen however
    many episodes lie between two looks, and until the returns are back or the good ones are forgotten."""
    newest, before = tail[-NEWEST:], tail[:-NEWEST]
    starts = range(len(before) - BLOCK, -1, -STRIDE)
    worst = min(((rank_sum(newest, before[at : at + BLOCK]), at) for at in starts), default=(0.0, 0))
    good = before[worst[1] : worst[1] + BLOCK]
    tied = len({*newest, *good}) < FEW_VALUES * (NEWEST + BLOCK)
    if worst[0] > -(TIED_BAR if tied else DROP_BAR):
        return None
    ago = len(tail) - worst[1]
    return Finding(
        "SuddenDrop",
        f"the newest {NEWEST} returns have the mean {_mean(newest):.4g}; the {BLOCK} that began {ago} episodes ago had "
        f"{_mean(good):.4g} ({-worst[0]:.1f} standard deviations of their ranks)",
    )


def instability(tail: Sequence[float]) -> Finding | None:
    """Neighbouring returns differ more than before. Differences leave a rising curve out; and where returns rise while
    they spread, an agent learns, which is not an anomaly."""
    if len(tail) < TAIL or rank_sum(tail[-LATE:], tail[:-LATE]) > LEARNING_BAR:
        return None
    steps = [abs(tail[index + 1] - tail[index]) for index in range(0, len(tail) - 1, 2)]
    late, early = steps[-LATE // 2 :], steps[: -LATE // 2]
    score = rank_sum(late, early)
    if score < SPREAD_BAR:
        return None
    return Finding(
        "Instability",
        f"the newest {LATE} returns differ from one to the next by {_mean(late):.4g}, those before by "
        f"{_mean(early):.4g} ({score:.1f} standard deviations of their ranks)",
    )


def slow_decline(tail: Sequence[float]) -> Finding | None:
    """Means of ten returns each fall from one to the next, over all that is looked at."""
    if len(tail) < TAIL:
        return None
    means = [_mean(tail[at : at + GROUP]) for at in range(0, len(tail), GROUP)]
    score = trend(means)
    if score > -DECLINE_BAR:
        return None
    return Finding(
        "SlowDecline",
        f"returns have fallen for {len(tail)} episodes, from {_mean(means[:4]):.4g} to {_mean(means[-4:]):.4g} "
        f"({-score:.1f} standard deviations of their order)",
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
