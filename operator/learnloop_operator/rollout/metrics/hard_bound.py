"""A hard bound of one arm, by the counters that its own pods serve: at most a share of its outcomes may be bad."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.evidence import count, number
from learnloop_operator.statistics.alarm import Alarm
from learnloop_operator.statistics.betting import NONE, Counts
from learnloop_operator.statistics.comparison import chance

Counters = Mapping[str, float]
"""Counters by name; the names below, `gain` and `loss` (sums of positive and of negative returns)."""
ENDED = "ended/"
"""+ success, failure, error, withdrawn: episodes by outcome."""
REQUESTS, FAILED = "requests", "failed"
"""Requests for an action, and those that failed because of the server or its policy."""
WITHIN = "within/"
"""+ seconds: requests that took no longer."""
COMPARED, AGREED, COPIES_FAILED = "shadow/compared", "shadow/agreed", "shadow/failed"
"""Copies of requests whose answer was compared with stable's, those with the same action, and those the policy failed
on, which are not compared."""
SLOW_SHARE = 0.01
"""Share of copies that may take longer than maxLatencySeconds."""
COPIES_WITHIN = "shadow/within/"
"""+ seconds: copies that took no longer."""

_FINISHED = ("success", "failure", "error")


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything one process has counted since it started, at one moment."""

    process: float
    """When the process started, by its own clock: another number is another process, whose counters began at 0."""
    counters: Counters

    @property
    def possible(self) -> bool:
        """Whether a counter can read so."""
        return math.isfinite(self.process) and all(
            math.isfinite(value) and value >= 0.0 for value in self.counters.values()
        )


def between(before: Reading | None, now: Reading) -> Counters:
    """Counts of one process between two readings.

    Empty where that cannot be known: the first reading, another process than before, a counter that is new or fell.
    Then `now` is a new beginning.
    """
    if before is None or before.process != now.process or before.counters.keys() != now.counters.keys():
        return {}
    more = {name: value - before.counters[name] for name, value in now.counters.items()}
    return {} if any(value < 0.0 for value in more.values()) else more


def total(parts: Sequence[Counters]) -> Counters:
    """All of them together."""
    names = {name for part in parts for name in part}
    return {name: math.fsum(part.get(name, 0.0) for part in parts) for name in names}


def finished(tally: Counters) -> float:
    """Episodes that ended by themselves."""
    return sum(tally.get(ENDED + outcome, 0.0) for outcome in _FINISHED)


def within(tally: Counters, seconds: float, family: str = WITHIN) -> float | None:
    """Requests that certainly took no longer than the first bucket bound from `seconds` on; None beyond the last.
    `family`: WITHIN, or COPIES_WITHIN for copies."""
    bounds = sorted(float(name.removeprefix(family)) for name in tally if name.startswith(family))
    result = next((bound for bound in bounds if seconds <= bound < math.inf), None)
    return None if result is None else tally[f"{family}{result!r}"]


# How sure it is that a bound is broken, and the numbers that say so.


@dataclass(frozen=True, slots=True)
class Confidence:
    """Whether the bound is certainly broken, and the half sentence of a verdict about it."""

    broken: bool
    text: str


def of_evidence(evidence: float, alpha: float, what: str) -> Confidence:
    """`evidence` is the log e-value of `what`; it suffices when chance alone reaches it once in 1/alpha."""
    return Confidence(evidence >= math.log(1.0 / alpha), f"P({what}) {chance_text(evidence)}, {1.0 - alpha:.6g} needed")


def chance_text(evidence: float) -> str:
    """The chance that a log e-value speaks of, in four digits; a higher one is never rounded to 1."""
    value = chance(evidence)
    return "> 0.9999" if value > 0.9999 else f"{value:.4f}".rstrip("0").rstrip(".")


def level_text(alpha: float) -> str:
    """The level of an interval that holds at all looks together."""
    return f"confidence {1.0 - alpha:.6g}"


# A hard bound of one arm: at most a share of its outcomes may be bad, by the counters that its own pods serve.


ROUNDING = 1.0 + 1e-6
"""Sums of many returns may differ in their last bits."""


@dataclass(frozen=True, slots=True)
class HardBound(ABC):
    """At most `share` of the outcomes may be bad. `low`: the bound is a minimum."""

    kind: ClassVar[str]
    of_episodes: ClassVar[bool] = False
    """Whether each outcome is an episode that ended."""
    together: ClassVar[bool] = False
    """Whether outcomes of one pod and second have a common cause, as one pause has: they count as one."""
    fewest_bad: ClassVar[float] = 0.0
    """So many outcomes must have been bad before the bound can be broken."""
    limit: float
    low: bool
    share: float
    min_episodes: int = 0
    scale: tuple[float, float] = (0.0, 1.0)
    """What an outcome of 0 and of 1 stands for."""

    @property
    def claim(self) -> str:
        """Names the alarm: a changed number asks another question."""
        return f"{self.kind} {'min' if self.low else 'max'} {self.limit:g} of {self.scale[0]:g}..{self.scale[1]:g}"

    @abstractmethod
    def bad(self, tally: Counters) -> Counts | None:
        """Outcomes and how many of them (or which part of each) were bad; None where the counters cannot tell."""

    def heard_of(self, batches: Sequence[Counters], seconds: float) -> Counts | None:
        """Outcomes and bad ones of what each pod has counted in so many seconds; None where counters cannot tell."""
        if not self.together:
            return self.bad(total(batches))
        alarms = NONE
        for batch in filter(None, batches):
            counts = self.bad(batch)
            if counts is None:
                return None
            alarms = alarms.plus(counts.at_most(seconds))
        return alarms

    @abstractmethod
    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """The verdict with its numbers, in the metric's own unit."""

    @property
    def bar_text(self) -> str:
        """`at least 0.9`, `at most 0.05`."""
        return f"at {'least' if self.low else 'most'} {number(self.limit)}"


class EpisodeBound(HardBound, ABC):
    """A hard bound on a mean of which each ended episode gives one outcome."""

    __slots__ = ()
    of_episodes = True
    noun: ClassVar[str]

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`success rate of the canary 0.2 over 31 episodes; bar at least 0.9`."""
        n, bad = alarm.recent.n, alarm.recent.total
        share = (n - bad if self.low else bad) / n
        mean = self.scale[0] + share * (self.scale[1] - self.scale[0])
        return f"{self.noun} of {subject_is} {number(mean)} over {count(round(n))}; bar {self.bar_text}"

    def within_scale(self, n: float, total: float) -> Counts:
        """Bad outcomes where `n` episodes add up to `total` on the scale 0..1.

        A sum that is worse than n worst returns proves one such return; how the others were is unknown, and a
        single one of -1000 must not count for all that ended in the same second. So a look of that kind counts for one
        outcome, as bad as can be: its mean, which is worse than that. A sum better than n best ones counts as n best.
        """
        bad = Counts(n, n - total if self.low else total)
        if not (math.isfinite(bad.n) and math.isfinite(bad.total)) or bad.n <= 0.0:
            return bad
        if bad.total > bad.n * ROUNDING:
            return Counts(min(1.0, bad.n), min(1.0, bad.n))
        return Counts(bad.n, min(bad.n, max(0.0, bad.total)))


def too_slow(prompt: float | None, requests: float) -> Counts | None:
    """Requests, and those that were slower than the `prompt` ones."""
    return None if prompt is None else Counts(requests, requests - prompt)


def episode_bounds(
    bound: type[EpisodeBound], metric: MetricThreshold, scale: tuple[float, float]
) -> Iterator[EpisodeBound]:
    """One bound for each of min and max of the metric."""
    start, end = scale
    for limit, low in ((metric.min, True), (metric.max, False)):
        if limit is not None and end > start:
            part = (limit - start) / (end - start)
            yield bound(limit, low, 1.0 - part if low else part, metric.min_episodes, scale)
