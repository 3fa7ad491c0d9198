"""Hard bounds of one arm, by the counters that its own pods serve: at most a share of its outcomes may be bad."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.evidence import count, number
from learnloop_operator.statistics.alarm import Alarm
from learnloop_operator.statistics.e_values import NONE, Counts

Counters = Mapping[str, float]
"""Counters by name; the names below, `gain` and `loss` (sums of positive and of negative returns)."""
ENDED = "ended/"
"""+ success, failure, error, withdrawn: episodes by outcome."""
REQUESTS, FAILED = "requests", "failed"
"""Requests for an action, and those that failed because of the server or its policy."""
WITHIN = "within/"
"""+ seconds: requests that took no longer."""
GROSSLY_SLOW_SHARE = 0.1
"""A bound of a latency is grossly broken when so many more of the requests are slower than its quantile allows: one
pause that a few requests met together is not a breach."""
FEWEST_FAILURES = 5
"""Requests must have failed so often before that rolls an arm back: a server counts one for each episode, so that it
takes as many episodes, drawn by the weights."""
ROUNDING = 1.0 + 1e-6
"""Sums of many returns may differ in their last bits."""


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
    return sum(tally.get(ENDED + outcome, 0.0) for outcome in ("success", "failure", "error"))


def within(tally: Counters, seconds: float) -> float | None:
    """Requests that certainly took no longer than the first bucket bound from `seconds` on; None beyond the last."""
    bounds = sorted(float(name.removeprefix(WITHIN)) for name in tally if name.startswith(WITHIN))
    result = next((bound for bound in bounds if seconds <= bound < math.inf), None)
    return None if result is None else tally[f"{WITHIN}{result!r}"]


@dataclass(frozen=True, slots=True)
class HardBound:
    """At most `share` of the outcomes may be bad. `low`: the bound is a minimum.

    `bad` counts the outcomes and the bad ones; None where the counters cannot tell. `text` is a format string of the
    verdict: {arm}, {bad} (a share), {mean} and {n} episodes, {limit}, {share}.
    """

    kind: str
    limit: float
    low: bool
    share: float
    bad: Callable[[Counters], Counts | None]
    text: str
    min_episodes: int = 0
    scale: tuple[float, float] = (0.0, 1.0)
    """The values that outcomes of 0 and of 1 stand for."""
    of_episodes: bool = False
    """Whether each outcome is an episode that ended."""
    together: bool = False
    """Whether outcomes of one pod and second have a common cause, as one pause has: they count as one."""
    fewest_bad: float = 0.0
    """So many outcomes must have been bad before the bound can be broken."""

    @property
    def key(self) -> str:
        """Names the alarm: a changed number asks another question."""
        return f"{self.kind} {'min' if self.low else 'max'} {self.limit:g} of {self.scale[0]:g}..{self.scale[1]:g}"

    def counted(self, batches: Sequence[Counters], seconds: float) -> Counts | None:
        """Outcomes and bad ones of what each pod has counted in so many seconds; None where counters cannot tell."""
        if not self.together:
            return self.bad(total(batches))
        result = NONE
        for batch in filter(None, batches):
            counts = self.bad(batch)
            if counts is None:
                return None
            result = result.plus(counts.at_most(seconds))
        return result

    def sentence(self, alarm: Alarm, arm: str) -> str:
        """The verdict with its numbers, in the metric's own unit."""
        n, bad = alarm.recent.n, alarm.recent.total
        start, end = self.scale
        mean = number(start + (n - bad if self.low else bad) / n * (end - start))
        episodes = count(round(n))
        if self.kind == "return" and bad == n:  # every outcome was as bad as can be: the mean may be beyond the range
            mean, episodes = f"at {'most' if self.low else 'least'} {mean}", f"at least {episodes}"
        return self.text.format(
            arm=arm,
            bad=number(bad / n),
            mean=mean,
            n=episodes,
            limit=number(self.limit),
            share=number(self.share),
        )


def failed_requests(most: float) -> HardBound:
    """maxRequestErrors of the fast lane."""

    def bad(tally: Counters) -> Counts:
        return Counts(tally.get(REQUESTS, 0.0), tally.get(FAILED, 0.0))

    text = "{bad} of the requests to {arm} failed; bar at most {limit}"
    return HardBound("requests", most, False, most, bad, text, fewest_bad=FEWEST_FAILURES)


def slow_requests(most: float, quantile: float, min_episodes: int) -> HardBound:
    """max of a latency's quantile."""

    def bad(tally: Counters) -> Counts | None:
        prompt, requests = within(tally, most), tally.get(REQUESTS, 0.0)
        return None if prompt is None else Counts(requests, requests - prompt)

    text = "{bad} of the requests to {arm} took longer than {limit} s; bar at most {share}"
    share = 1.0 - quantile + GROSSLY_SLOW_SHARE
    return HardBound("latency", most, False, share, bad, text, min_episodes, together=True)


def episode_bounds(
    kind: str,
    noun: str,
    metric: MetricThreshold,
    summed: Callable[[Counters], float],
    scale: tuple[float, float] = (0.0, 1.0),
) -> Iterator[HardBound]:
    """One bound for each of min and max of a mean over ended episodes. `summed`: their sum, in the metric's unit."""
    start, end = scale
    for limit, low in ((metric.min, True), (metric.max, False)):
        if limit is None or end <= start:
            continue

        def bad(tally: Counters, low: bool = low) -> Counts:
            n = finished(tally)
            return _within_scale(n, (summed(tally) - n * start) / (end - start), low)

        part = (limit - start) / (end - start)
        text = f"{noun} of {{arm}} {{mean}} over {{n}}; bar at {'least' if low else 'most'} {{limit}}"
        share = 1.0 - part if low else part
        yield HardBound(kind, limit, low, share, bad, text, metric.min_episodes, scale, of_episodes=True)


def _within_scale(n: float, total: float, low: bool) -> Counts:
    """Bad outcomes where `n` episodes add up to `total` on the scale 0..1.

    A sum that is worse than n worst returns proves one such return; how the others were is unknown, and a single one of
    -1000 must not count for all that ended in the same second. So a look of that kind counts for one outcome, as bad as
    can be: its mean, which is worse than that. A sum better than n best ones counts as n best.
    """
    bad = Counts(n, n - total if low else total)
    if not (math.isfinite(bad.n) and math.isfinite(bad.total)) or bad.n <= 0.0:
        return bad
    if bad.total > bad.n * ROUNDING:
        return Counts(min(1.0, bad.n), min(1.0, bad.n))
    return Counts(bad.n, min(bad.n, max(0.0, bad.total)))
