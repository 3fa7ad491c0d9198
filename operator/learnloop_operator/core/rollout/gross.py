"""Gross breaches: hard bounds that the arm's own counters break beyond doubt.

Only min and max of the analysis and the share of failing requests are asked, no comparison with stable: a bound needs
one arm, and one arm is what the fast lane reads. Each bound is an alarm (sequential/alarm.py), so that reading every
second costs no false rollback.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from learnloop_api.kinds.analysis import Analysis, MetricThreshold
from learnloop_operator.core.rollout.evidence import NOUN, count, number
from learnloop_operator.core.rollout.tally import ENDED, FAILED, REQUESTS, Tally, ended, finished, within
from learnloop_operator.core.sequential.alarm import Alarm, heard
from learnloop_operator.core.sequential.betting import Counts

BUDGET = 0.1
"""Share of analysis.alpha that all bounds together may err with in a rollout, beside the sequential tests' alpha."""
SLOW = 0.1
"""A bound of a latency is grossly broken when so many more of the requests are slower than its quantile allows: one
pause that a few requests met together is no breach."""

Kind = Literal["success", "errors", "return", "latency", "requests"]


@dataclass(frozen=True, slots=True)
class Bound:
    """One hard bound: at most `share` of the outcomes may be bad. `low`: the bound is a minimum."""

    kind: Kind
    limit: float
    low: bool
    share: float
    min_episodes: int
    scale: tuple[float, float] = (0.0, 1.0)

    @property
    def claim(self) -> str:
        """Names the alarm: whoever changes a number asks another question."""
        return f"{self.kind} {'min' if self.low else 'max'} {self.limit:g} of {self.scale[0]:g}..{self.scale[1]:g}"

    def bad(self, tally: Tally) -> Counts | None:
        """Outcomes and how many of them (or which part of each) were bad; None where the counters cannot tell."""
        if self.kind == "requests":
            return Counts(tally.get(REQUESTS, 0.0), tally.get(FAILED, 0.0))
        if self.kind == "latency":
            prompt, total = within(tally, self.limit), tally.get(REQUESTS, 0.0)
            return None if prompt is None else Counts(total, total - prompt)
        n, total = _outcomes(self.kind, tally, self.scale)
        return Counts(n, n - total if self.low else total)

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """The verdict with its numbers, in the metric's own unit."""
        n, bad = alarm.recent.n, alarm.recent.total
        if self.kind == "requests":
            return f"{number(bad / n)} of {n:.0f} requests to {subject_is} failed; bar at most {number(self.limit)}"
        if self.kind == "latency":
            slow = f"{number(bad / n)} of {n:.0f} requests to {subject_is} took longer than {number(self.limit)} s"
            return f"{slow}; bar at most {number(self.share)}"
        share = (n - bad if self.low else bad) / n
        value = self.scale[0] + share * (self.scale[1] - self.scale[0])
        bar = f"bar at {'least' if self.low else 'most'} {number(self.limit)}"
        return f"{NOUN[self.kind]} of {subject_is} {number(value)} over {count(round(n))}; {bar}"


def bounds(analysis: Analysis) -> list[Bound]:
    """Every hard bound of the analysis that one arm's counters can break."""
    errors = analysis.fast_lane.max_request_errors
    found = [Bound("requests", errors, False, errors, 0)]
    for metric in analysis.metrics:
        found += _of(metric)
    return [bound for bound in found if 0.0 <= bound.share < 1.0]


def listened(
    analysis: Analysis, before: Mapping[str, Alarm], batch: Tally, episodes: float, moment: int
) -> dict[str, Alarm]:
    """Every bound's alarm after `batch`, at `moment` (1, 2, … since the rollout's start).

    `episodes`: finished at the present weight before the batch. Until there are minEpisodes of them, outcomes of
    episodes do not count: of the first episodes the short ones end first, and those are often the failed ones.
    """
    after = {}
    for bound in bounds(analysis):
        alarm, bad = before.get(bound.claim, Alarm()), bound.bad(batch)
        if bad is not None and episodes >= bound.min_episodes:
            alarm = heard(alarm, bad, bound.share, moment)
        after[bound.claim] = alarm
    return after


def breach(analysis: Analysis, alarms: Mapping[str, Alarm], subject_is: str) -> str:
    """The bounds that are broken beyond doubt, in one sentence; "" while there is none."""
    asked = bounds(analysis)
    bar = math.log(len(asked) / (BUDGET * analysis.alpha)) if asked else math.inf
    broken = [bound for bound in asked if bound.claim in alarms and alarms[bound.claim].evidence >= bar]
    said = "; ".join(bound.sentence(alarms[bound.claim], subject_is) for bound in broken)
    return f"{said}; read from its own pods" if said else ""


def _of(metric: MetricThreshold) -> Iterator[Bound]:
    if metric.dry_run or metric.type == "promql" or metric.type == "drift":
        return
    if metric.type == "latency":
        if metric.max is not None:
            share = 1.0 - (metric.quantile or 0.99) + SLOW
            yield Bound("latency", metric.max, False, share, metric.min_episodes)
        return
    if metric.type == "return" and metric.return_range is None:
        return  # a mean that may be anything is refuted by no number of episodes
    where = metric.return_range if metric.type == "return" else None
    low, high = (where.lowest, where.highest) if where else (0.0, 1.0)
    for limit, is_low in ((metric.min, True), (metric.max, False)):
        if limit is not None and high > low:
            part = (limit - low) / (high - low)
            share = 1.0 - part if is_low else part
            yield Bound(metric.type, limit, is_low, share, metric.min_episodes, (low, high))


def _outcomes(kind: Kind, tally: Tally, scale: tuple[float, float]) -> tuple[float, float]:
    """Episodes and the sum of their values on the scale 0..1. Returns are known of all that ended, cut off or not."""
    if kind == "return":
        n = ended(tally)
        return n, (tally.get("gain", 0.0) - tally.get("loss", 0.0) - n * scale[0]) / (scale[1] - scale[0])
    return finished(tally), tally.get(ENDED + ("success" if kind == "success" else "error"), 0.0)
