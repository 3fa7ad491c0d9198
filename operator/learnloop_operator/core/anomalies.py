"""Anomalies in the returns of a run or of an arm that serves, and the condition that reports them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from learnloop_operator.core import conditions, plan


def rank_sum(first: Sequence[float], second: Sequence[float]) -> float:
    """Standard deviations by which `first` ranks above `second` (H. B. Mann, D. R. Whitney, Annals of Mathematical
    Statistics 18, 1947), with the variance corrected for ties; 0 where all values are the same."""
    m, n = len(first), len(second)
    total = m + n
    order = sorted([(value, True) for value in first] + [(value, False) for value in second])
    ranks = ties = 0.0
    start = 0
    while start < total:
        end = start + 1  # NaN equals nothing, not even itself
        while end < total and order[end][0] == order[start][0]:
            end += 1
        same = end - start
        ranks += sum(own for _, own in order[start:end]) * (start + end + 1) / 2.0
        ties += same**3 - same
        start = end
    variance = m * n / 12.0 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0.0:
        return 0.0
    return (ranks - m * (total + 1) / 2.0) / math.sqrt(variance)


# Rules for returns of any sign and scale: what they say depends on the order of the returns alone.
#
# The bars aim at alarms in at most 1 % of quiet runs of 1,000 episodes that are looked at after every ten.


Anomaly = Literal["SuddenDrop", "Instability"]
TAIL = 200
"""Newest returns that are looked at."""
LEAST = 51
NEWEST, BLOCK, STRIDE = 10, 40, 10
DROP_BAR, SPREAD_BAR = 4.45, 4.6
TIED_BAR, FEW_VALUES = 5.3, 0.75
"""If fewer than three of four returns differ (successes, a limit that most reach), ranks are far from normal."""
LATE = 50
"""Newest returns whose spread is compared with that of those before."""
LEARNING_BAR = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, and a sentence with its figures."""

    anomaly: Anomaly
    sentence: str


@dataclass(frozen=True, slots=True)
class ReturnAnomalies:
    """Anomalies in the returns of one run or arm; empty without any."""

    returns: int
    findings: tuple[Finding, ...] = ()


def find(returns: Sequence[float]) -> ReturnAnomalies:
    """Looks at the newest returns, oldest first."""
    tail = list(returns[-TAIL:])
    if len(tail) < LEAST:
        return ReturnAnomalies(len(tail))
    result = (sudden_drop(tail), instability(tail))
    return ReturnAnomalies(len(tail), tuple(item for item in result if item))


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
    they spread, an agent learns, which is normal."""
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# The condition Anomalous of a TrainingJob or LearningAgent, and the event when it turns.


TYPE = "Anomalous"
QUIET, TOO_FEW = "Quiet", "TooFewEpisodes"
CALM = "no sudden drop, no instability"


def judged(
    watched: Mapping[str, ReturnAnomalies], before: Iterable[Mapping[str, Any]], generation: int
) -> list[dict[str, Any]]:
    """The condition, from what was found of each subject ("" for a run itself, else "revision …"); none where nothing
    was looked at. Its message stays as it is while the reason does: moving figures are not news.
    """
    if not watched:
        return []
    status, reason, message = _verdict(watched)
    new, old = (
        conditions.condition(TYPE, status, reason, message[:1024], generation),
        conditions.find({"conditions": before}, TYPE),
    )
    same = (old.get("status"), old.get("reason")) == (new["status"], reason)
    return [{**new, "message": old.get("message", message)} if same else new]


def news(before: Mapping[str, Any], after: plan.KubeObject) -> tuple[plan.Notice, ...]:
    """An event when an anomaly was found, and when it is over."""
    old, new = conditions.find(before, TYPE), conditions.find(after, TYPE)
    if new.get("status") == conditions.TRUE and old.get("reason") != new["reason"]:
        return (plan.Notice("Warning", new["reason"], new["message"]),)
    if old.get("status") == conditions.TRUE and new.get("status") == conditions.FALSE:
        return (plan.Notice("Normal", "AnomalyOver", f"{old['reason']} is over: {new['message']}"[:1024]),)
    return ()


def _verdict(watched: Mapping[str, ReturnAnomalies]) -> tuple[bool | None, str, str]:
    for subject, result in watched.items():
        if result.findings:
            first = result.findings[0]
            others = "".join(f"; {item.anomaly}: {item.sentence}" for item in result.findings[1:])
            return True, first.anomaly, f"{subject}: {first.sentence}{others}".removeprefix(": ")
    enough = [result for result in watched.values() if result.returns >= LEAST]
    if not enough:
        most = max(result.returns for result in watched.values())
        return None, TOO_FEW, f"fewer than {LEAST} episodes can be looked at ({most} when this was written)"
    return False, QUIET, CALM
