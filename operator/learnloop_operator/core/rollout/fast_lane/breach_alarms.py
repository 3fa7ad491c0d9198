"""Gross breaches: hard bounds that the arm's own counters break beyond doubt.

Each bound (hard_bounds.py has them) is an alarm (sequential/alarm.py), so that reading every second costs no false
rollback.
"""

import math
from collections.abc import Mapping
from typing import Literal

from learnloop_operator.core.rollout.evidence.arm_evidence import NOUN, count, number
from learnloop_operator.core.rollout.fast_lane.pod_counters import (
    AGREED,
    COMPARED,
    COPIES_FAILED,
    COPIES_WITHIN,
    ENDED,
    FAILED,
    REQUESTS,
    Tally,
    ended,
    finished,
    within,
)
from learnloop_operator.core.sequential.alarm import Alarm, heard
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.tuning.value_objects import value

Kind = Literal["success", "errors", "return", "latency", "requests", "copies failed", "copies latency", "agreement"]
ROUNDING = 1.0 + 1e-6
"""Sums of many returns may differ in their last bits."""
FEWEST_FAILURES = 5
"""Requests must have failed so often before that takes an arm back: a server counts one for each episode, so that it
takes as many episodes, drawn by the weights."""
OF_COPIES = ("copies failed", "copies latency", "agreement")


@value
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
        match self.kind:
            case "requests":
                return Counts(tally.get(REQUESTS, 0.0), tally.get(FAILED, 0.0))
            case "copies failed":
                failed = tally.get(COPIES_FAILED, 0.0)
                return Counts(tally.get(COMPARED, 0.0) + failed, failed)
            case "agreement":
                compared = tally.get(COMPARED, 0.0)
                return Counts(compared, compared - tally.get(AGREED, 0.0))
            case "latency":
                return _slow(within(tally, self.limit), tally.get(REQUESTS, 0.0))
            case "copies latency":
                return _slow(within(tally, self.limit, COPIES_WITHIN), tally.get(f"{COPIES_WITHIN}inf", 0.0))
        n, total = _outcomes(self.kind, tally, self.scale)
        return _within_scale(Counts(n, n - total if self.low else total))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """The verdict with its numbers, in the metric's own unit."""
        n, bad = alarm.recent.n, alarm.recent.total
        what = "copies of requests" if self.kind in OF_COPIES else "requests"
        if self.kind in ("requests", "copies failed"):
            return f"{number(bad / n)} of {n:.0f} {what} to {subject_is} failed; bar at most {number(self.limit)}"
        if self.kind in ("latency", "copies latency"):
            slow = f"{number(bad / n)} of {n:.0f} {what} to {subject_is} took longer than {number(self.limit)} s"
            return f"{slow}; bar at most {number(self.share)}"
        if self.kind == "agreement":
            agreed = f"{subject_is} agrees with stable on {number(1.0 - bad / n)} of {n:.0f} {what}"
            return f"{agreed}; bar at least {number(self.limit)}"
        if self.kind == "return" and bad == n:
            most = f"at {'most' if self.low else 'least'} {number(self.scale[0] if self.low else self.scale[1])}"
            return f"{NOUN[self.kind]} of {subject_is} {most} over at least {count(round(n))}; bar {self._bar}"
        share = (n - bad if self.low else bad) / n
        value = self.scale[0] + share * (self.scale[1] - self.scale[0])
        return f"{NOUN[self.kind]} of {subject_is} {number(value)} over {count(round(n))}; bar {self._bar}"

    @property
    def _bar(self) -> str:
        return f"at {'least' if self.low else 'most'} {number(self.limit)}"


@value
class Questions:
    """What is asked of one arm at present. `bar`: the log e-value at which a bound counts as broken beyond doubt."""

    bounds: tuple[Bound, ...]
    bar: float
    exposed: bool = True
    """Whether the arm gets episodes or copies; while it gets none, what its pods count is not of this rollout."""


def listened(
    asked: Questions, before: Mapping[str, Alarm], batch: Tally, episodes: float, moment: int
) -> dict[str, Alarm]:
    """Every alarm after `batch`, at `moment` (1, 2, … since the rollout's start); those not asked stay as they are.

    `episodes`: finished at the present weight before the batch. Until there are minEpisodes of them, outcomes of
    episodes do not count: of the first episodes the short ones end first, and those are often the failed ones.
    """
    after = dict(before)
    for bound in asked.bounds:
        alarm, bad = before.get(bound.claim, Alarm()), bound.bad(batch)
        if bad is not None and episodes >= bound.min_episodes:
            alarm = heard(alarm, bad, bound.share, moment)
        after[bound.claim] = alarm
    return after


def breach(asked: Questions, alarms: Mapping[str, Alarm], subject_is: str) -> str:
    """The bounds that are broken beyond doubt, in one sentence; "" while there is none."""
    broken = [
        bound for bound in asked.bounds if bound.claim in alarms and _is_broken(bound, alarms[bound.claim], asked.bar)
    ]
    said = "; ".join(bound.sentence(alarms[bound.claim], subject_is) for bound in broken)
    return f"{said}; read from its own pods" if said else ""


def _is_broken(bound: Bound, alarm: Alarm, bar: float) -> bool:
    return alarm.evidence >= bar and (bound.kind != "requests" or alarm.recent.total >= FEWEST_FAILURES)


def _slow(prompt: float | None, all_of_them: float) -> Counts | None:
    return None if prompt is None else Counts(all_of_them, all_of_them - prompt)


def _within_scale(bad: Counts) -> Counts:
    """The same for returns that leave their scale, which only their sum tells.

    A sum that is worse than n worst returns proves one such return; how the others were nobody can tell, and a single
    one of -1000 must not count for all that ended in the same second. So a look of that kind counts for one outcome,
    as bad as can be: its mean, which is worse than that. A sum better than n best ones counts as n best.
    """
    if not (math.isfinite(bad.n) and math.isfinite(bad.total)) or bad.n <= 0.0:
        return bad
    if bad.total > bad.n * ROUNDING:
        return Counts(min(1.0, bad.n), min(1.0, bad.n))
    return Counts(bad.n, min(bad.n, max(0.0, bad.total)))


def _outcomes(kind: Kind, tally: Tally, scale: tuple[float, float]) -> tuple[float, float]:
    """Episodes and the sum of their values on the scale 0..1. Returns are known of all that ended, cut off or not."""
    if kind == "return":
        n = ended(tally)
        return n, (tally.get("gain", 0.0) - tally.get("loss", 0.0) - n * scale[0]) / (scale[1] - scale[0])
    return finished(tally), tally.get(ENDED + ("success" if kind == "success" else "error"), 0.0)
