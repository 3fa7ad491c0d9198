"""The fast lane: hard bounds asked of the counters that the pods of an arm on trial serve, each second."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from types import MappingProxyType
from typing import Generic, TypeVar

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_api.kinds.rollouts.gates import ShadowCheck
from learnloop_operator.rollout.evidence import number
from learnloop_operator.rollout.metrics.all_types import GROSSLY_SLOW_SHARE, type_of
from learnloop_operator.rollout.metrics.hard_bound import (
    AGREED,
    COMPARED,
    COPIES_FAILED,
    COPIES_WITHIN,
    FAILED,
    REQUESTS,
    SLOW_SHARE,
    Counters,
    HardBound,
    Reading,
    between,
    finished,
    too_slow,
    total,
    within,
)
from learnloop_operator.statistics.alarm import Alarm, heard
from learnloop_operator.statistics.betting import Counts


@dataclass(frozen=True, slots=True)
class Questions:
    """The bounds asked of one arm now. `bar`: the log e-value at which a bound counts as broken beyond doubt."""

    bounds: tuple[HardBound, ...]
    bar: float
    exposed: bool = True
    """Whether the arm gets episodes or copies; while it gets none, what its pods count is not of this rollout."""


def listened(
    asked: Questions,
    before: Mapping[str, Alarm],
    batches: Sequence[Counters],
    seconds: float,
    episodes: float,
    moment: int,
    *,
    steady: bool,
) -> dict[str, Alarm]:
    """Every alarm after each pod's batch of the last `seconds`, at `moment` (1, 2, … since the rollout's start); those
    not asked stay as they are.

    `episodes`: finished at the present weight before the batch. Until there are minEpisodes of them, and the arm's
    endings are `steady` (checks/unfinished_episodes.py), outcomes of episodes do not count: the short ones end first,
    and those are often the failed ones.
    """
    after = dict(before)
    for bound in asked.bounds:
        alarm, bad = before.get(bound.claim, Alarm()), bound.heard_of(batches, seconds)
        if bad is not None and episodes >= bound.min_episodes and (steady or not bound.of_episodes):
            alarm = heard(alarm, bad, bound.share, moment)
        after[bound.claim] = alarm
    return after


def breach(asked: Questions, alarms: Mapping[str, Alarm], subject_is: str) -> str:
    """The bounds that are broken beyond doubt, in one sentence; "" while there is none."""
    broken = [
        bound for bound in asked.bounds if bound.claim in alarms and _is_broken(bound, alarms[bound.claim], asked.bar)
    ]
    text = "; ".join(bound.sentence(alarms[bound.claim], subject_is) for bound in broken)
    return f"{text}; read from its own pods" if text else ""


def _is_broken(bound: HardBound, alarm: Alarm, bar: float) -> bool:
    return alarm.evidence >= bar and alarm.recent.total >= bound.fewest_bad


# The hard bounds that the fast lane asks of an arm's own counters.
#
# It asks min and max of the analysis and the share of failing requests; of an arm in shadow, the bars of its step. It
# compares nothing with stable: a bound needs one arm.


BUDGET = 0.1
"""Share of analysis.alpha that all bounds of a rollout, or of all arms of an
experiment, may err with together, in addition to the sequential tests' alpha."""


FEWEST_FAILURES = 5
"""Requests must have failed so often before that rolls an arm back: a server counts one for each episode, so that it
takes as many episodes, drawn by the weights."""


class FailedRequests(HardBound):
    """maxRequestErrors of the fast lane."""

    __slots__ = ()
    kind = "requests"
    fewest_bad = FEWEST_FAILURES

    def bad(self, tally: Counters) -> Counts:
        """Requests for an action that failed."""
        return Counts(tally.get(REQUESTS, 0.0), tally.get(FAILED, 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.5 of the requests to the canary failed; bar at most 0.05`."""
        return _failed(self, alarm, f"requests to {subject_is}")


class FailedCopies(HardBound):
    """maxErrorRate of a shadow step."""

    __slots__ = ()
    kind = "copies failed"

    def bad(self, tally: Counters) -> Counts:
        """Copies that the policy failed on."""
        failed = tally.get(COPIES_FAILED, 0.0)
        return Counts(tally.get(COMPARED, 0.0) + failed, failed)

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.5 of the copies of requests to the canary failed; bar at most 0.05`."""
        return _failed(self, alarm, f"copies of requests to {subject_is}")


class SlowCopies(HardBound):
    """maxLatencySeconds of a shadow step."""

    __slots__ = ()
    kind = "copies latency"
    together = True

    def bad(self, tally: Counters) -> Counts | None:
        """Copies that took longer."""
        return too_slow(within(tally, self.limit, COPIES_WITHIN), tally.get(f"{COPIES_WITHIN}inf", 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.5 of the copies of requests to the canary took longer than 0.1 s; bar at most 0.11`."""
        n, bad = alarm.recent.n, alarm.recent.total
        copies = f"{number(bad / n)} of the copies of requests to {subject_is}"
        return f"{copies} took longer than {number(self.limit)} s; bar at most {number(self.share)}"


class Disagreement(HardBound):
    """minAgreement of a shadow step."""

    __slots__ = ()
    kind = "agreement"

    def bad(self, tally: Counters) -> Counts:
        """Copies that were answered with another action than stable's."""
        compared = tally.get(COMPARED, 0.0)
        return Counts(compared, compared - tally.get(AGREED, 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`the canary agrees with stable on 0.4 of the copies of requests; bar at least 0.9`."""
        n, bad = alarm.recent.n, alarm.recent.total
        agreed = f"{subject_is} agrees with stable on {number(1.0 - bad / n)} of the copies of requests"
        return f"{agreed}; bar at least {number(self.limit)}"


def of_episodes(spec: ModelDeploymentSpec, weight: int, arms: int = 1) -> Questions:
    """Of each of `arms` arms on trial that gets `weight` percent of the episodes."""
    return _asked(spec, _distinct(of_analysis(spec.analysis)), arms, weight > 0)


def of_copies(spec: ModelDeploymentSpec, bars: ShadowCheck) -> Questions:
    """Of an arm in shadow."""
    return _asked(spec, _distinct(_of_shadow(bars)), 1, True)


def of_analysis(analysis: Analysis) -> Iterator[HardBound]:
    """Every hard bound of the analysis that one arm's counters can break."""
    errors = analysis.fast_lane.max_request_errors
    yield FailedRequests(errors, False, errors)
    for metric in analysis.metrics:
        yield from type_of(metric).hard_bounds(metric)


def _asked(spec: ModelDeploymentSpec, bounds: tuple[HardBound, ...], arms: int, exposed: bool) -> Questions:
    """A rollout's shadow steps and its other steps share the budget, and so do the arms of an experiment."""
    shadows = [bound for step in spec.rollout.steps if step.shadow for bound in _of_shadow(step.shadow)]
    claims = len(_distinct((*of_analysis(spec.analysis), *shadows)))
    return Questions(bounds, math.log(max(1, claims * arms) / (BUDGET * spec.analysis.alpha)), exposed)


def _distinct(bounds: Iterable[HardBound]) -> tuple[HardBound, ...]:
    """Those that can be broken, each claim once."""
    return tuple({bound.claim: bound for bound in bounds if 0.0 <= bound.share < 1.0}.values())


def _of_shadow(bars: ShadowCheck) -> Iterator[HardBound]:
    yield FailedCopies(bars.max_error_rate, False, bars.max_error_rate)
    if bars.max_latency_seconds is not None:
        yield SlowCopies(bars.max_latency_seconds, False, SLOW_SHARE + GROSSLY_SLOW_SHARE)
    if bars.min_agreement is not None:
        yield Disagreement(bars.min_agreement, True, 1.0 - bars.min_agreement)


def _failed(bound: HardBound, alarm: Alarm, what: str) -> str:
    n, bad = alarm.recent.n, alarm.recent.total
    return f"{number(bad / n)} of the {what} failed; bar at most {number(bound.limit)}"


# The fast lane's evidence about one arm: what its pods said themselves, look by look.
#
# A look hears the pods that answer: what one counted since it was last heard is new, however long that was ago, and is
# heard once. A pod that gives no reading, a number that is none and a process that was replaced in between add nothing.


FRESH = timedelta(seconds=10)
"""Older looks decide nothing: the arm may be another one by now."""
DEGRADED_AFTER, RECOVERED_AFTER = timedelta(seconds=5), timedelta(seconds=30)
"""How long looks must fail, or succeed, before the lane's state changes: a state that flaps costs a write each time."""

UNREACHABLE, UNUSABLE = "PodsUnreachable", "CountersUnusable"
"""Why a pod gave no reading: no answer, or one without the arm's counters."""

NOBODY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FastLaneHealth:
    """Whether the lane works; slow to change its mind."""

    problem: str = ""
    """UNREACHABLE or UNUSABLE while pods give no reading."""
    silent: int = 0
    """How many of the pods those are, where others are read; 0 where it is all of them, or none."""
    of: int = 0
    """How many pods there are where some are silent."""
    doubted_since: datetime | None = None
    doubted_for_worse: bool = False

    @property
    def level(self) -> tuple[int, int]:
        """Greater is worse: all pods are read, some are silent, all are."""
        if not self.problem:
            return (0, 0)
        return (1, self.silent) if self.of else (2, 0)

    def after(self, problem: str, now: datetime, silent: int = 0, of: int = 0) -> "FastLaneHealth":
        """The state after a look at which all pods had `problem`, `silent` pods `of` all had it, or, with "", none."""
        counted = FastLaneHealth(problem, silent, of)
        if counted.level == self.level:
            return replace(self, of=of, doubted_since=None)
        worse = counted.level > self.level
        if self.doubted_since is None or worse != self.doubted_for_worse:
            return replace(self, doubted_since=now, doubted_for_worse=worse)
        patience = DEGRADED_AFTER if worse else RECOVERED_AFTER
        return counted if now - self.doubted_since >= patience else self


@dataclass(frozen=True, slots=True)
class PodEvidence:
    """Evidence about the arm `revision` in the rollout that began at `rollout`. A retry is another rollout."""

    revision: str
    rollout: str
    weight: int = 0
    episodes: float = 0.0
    """Episodes that finished at this weight, as far as they were read."""
    steady: bool = False
    """Whether the episodes that end are those that are opened at this weight: not only the short ones of them."""
    last: Mapping[str, Reading] = field(default_factory=dict)
    """The last reading of each pod, one that is silent now included: its next reading is compared with it."""
    alarms: Mapping[str, Alarm] = field(default_factory=dict)
    seen_at: datetime | None = None
    """When a pod was read last."""
    health: FastLaneHealth = field(default_factory=FastLaneHealth)
    every: int = 1
    """Seconds between two looks; more than 1 where more pods are on trial than can be read in a second."""


def looked(
    direct: PodEvidence,
    readings: Mapping[str, Reading],
    asked: Questions,
    now: datetime,
    moment: int,
    silent: Mapping[str, str] = NOBODY,
) -> PodEvidence:
    """The evidence after a look. `moment`: 1, 2, … since the rollout's start; `silent`: the pods that gave no reading,
    each with UNREACHABLE or UNUSABLE.

    The first reading of a process is a beginning: whatever it counted before, perhaps in an earlier rollout, is not
    asked. So is everything while the arm gets neither episodes nor copies, that of a pod that is silent then included.
    """
    message = {pod: reading for pod, reading in readings.items() if reading.possible}
    silent = {**silent, **dict.fromkeys(readings.keys() - message.keys(), UNUSABLE)}
    remaining = {pod: direct.last[pod] for pod in silent if asked.exposed and pod in direct.last}
    after = replace(direct, last={**remaining, **message}, health=_health(direct.health, len(message), silent, now))
    if not message:
        return after
    after = replace(after, seen_at=now)
    batches = [between(direct.last.get(pod), reading) for pod, reading in message.items()]
    if not asked.exposed or not any(batches):
        return after
    seconds = max(1.0, (now - direct.seen_at).total_seconds()) if direct.seen_at else 1.0
    alarms = listened(asked, direct.alarms, batches, seconds, direct.episodes, moment, steady=direct.steady)
    return replace(after, alarms=alarms, episodes=direct.episodes + finished(total(batches)))


def trouble(silent: Mapping[str, str]) -> str:
    """The reason that these pods gave no reading; "" for none. A blocked network path explains more."""
    return UNREACHABLE if UNREACHABLE in silent.values() else next(iter(silent.values()), "")


def _health(before: FastLaneHealth, told: int, silent: Mapping[str, str], now: datetime) -> FastLaneHealth:
    some = (len(silent), len(silent) + told) if silent and told else (0, 0)
    return before.after(trouble(silent), now, *some)


def at_weight(direct: PodEvidence, weight: int) -> PodEvidence:
    """The evidence now that the arm gets `weight` percent; another weight begins with other episodes."""
    return direct if weight == direct.weight else replace(direct, weight=weight, episodes=0.0, steady=False)


# When to read a pod again that did not answer, and how often pods are read in fact.


FIRST, LONGEST = 1.0, 10.0
"""Seconds until somebody silent is asked again; twice as long after each time, up to LONGEST."""
PERIODS = (1, 2, 5, 10, 20, 30, 60)
"""Periods to report, in seconds: a figure that moves with every pod of the cluster would be written with each."""
REMEMBERED = 9
"""Looks whose distance is remembered; their median is reported."""
SLOWER, FASTER = 1.5, 1.2
"""A period is reported until looks are SLOWER times that apart, and a shorter one from FASTER times that on."""

K = TypeVar("K")


class ReadBackoff(Generic[K]):
    """Pods that did not answer lately. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._silent: dict[K, tuple[int, float]] = {}

    def due(self, them: Sequence[K], now: float) -> tuple[K, ...]:
        """Those to ask at `now`; who is not among `them` any more is forgotten."""
        here = set(them)
        self._silent = {key: recorded for key, recorded in self._silent.items() if key in here}
        return tuple(key for key in them if key not in self._silent or self._silent[key][1] <= now)

    def answered(self, key: K) -> None:
        """It is asked each time again."""
        self._silent.pop(key, None)

    def missed(self, key: K, asked_at: float) -> None:
        """It was asked and did not answer."""
        times = self._silent.get(key, (0, 0.0))[0]
        self._silent[key] = (min(times + 1, 16), asked_at + min(LONGEST, FIRST * 2**times))


class ReadInterval:
    """How far apart looks are, as measured."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=REMEMBERED)
        self._last: float | None = None
        self.every = PERIODS[0]
        """Seconds between two looks, rounded to one of PERIODS (beyond them to whole seconds), slow to change."""

    def looked(self, now: float) -> None:
        """A look ended at `now`."""
        if self._last is not None:
            self._gaps.append(now - self._last)
            gap = median(self._gaps)
            slower, faster = rounded(gap / SLOWER), rounded(gap / FASTER)
            self.every = slower if slower > self.every else min(self.every, faster)
        self._last = now


def rounded(seconds: float) -> int:
    """Up to one of PERIODS; beyond them to whole seconds."""
    return next((period for period in PERIODS if seconds <= period), round(seconds))
