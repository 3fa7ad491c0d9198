"""Evidence of each arm, and where it comes from: missing data is a state of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.core.times import duration, rough
from learnloop_operator.rollout import reasons
from learnloop_operator.statistics.e_values import Counts
from learnloop_operator.statistics.latency import Histogram


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a number is missing: a reason constant and half a sentence."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Openings:
    """Episodes of one arm by their openings in the window: what has not ended is evidence, too."""

    opened: float
    """Episodes that were given to the arm."""
    due: float
    """Those of them that were opened longer ago than the deadline."""
    closed: float
    """Episodes that ended in any way, a withdrawn arm included; of stable some were opened before the window."""
    in_time: float | None = None
    """Those that ended before their deadline; None: the servers do not say how long episodes last."""
    young: float = 0.0
    """Ended episodes that were opened within the deadline, as far as that is certain: they were never due."""
    lasted: Histogram = field(default_factory=dict)
    """Ended episodes by the seconds from their opening to their end."""

    @property
    def running(self) -> float:
        """Episodes that are neither ended nor overdue, at most."""
        return max(0.0, min(self.opened - self.closed, self.opened - self.due - self.young))

    @property
    def open_share(self) -> float:
        """Of the opened episodes, those that have not ended; 0 where none was opened."""
        return max(0.0, self.opened - self.closed) / self.opened if self.opened > 0.0 else 0.0

    @property
    def late_share(self) -> float:
        """Of the ended episodes, those that took longer than the deadline."""
        if self.in_time is None or self.closed <= 0.0:
            return 0.0
        return max(0.0, self.closed - self.in_time) / self.closed


@dataclass(frozen=True, slots=True)
class ArmEvidence:
    """One arm over one window. Rates are shares in 0..1, latency is in seconds, returns are undiscounted sums."""

    episodes: int = 0
    mean_return: float | None = None
    success_rate: float | None = None
    error_rate: float | None = None
    latency: Histogram = field(default_factory=dict)
    """Requests of policies by their duration in seconds."""
    scraped_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    lately: int | None = None
    """Episodes that ended within the last progressDeadlineSeconds; None where it was not requested."""
    gap: int = 0
    """Pods that counted before the window began and without a sample from then."""
    openings: Openings | None = None
    """None where openings are not counted: an arm that is asked by requests without episodes."""
    rewards: Counts | None = None
    """Rewarded episodes and the sum of their raw rewards; None where it was not requested, or without an answer."""
    opinions: Counts | None = None
    """Rated episodes and the sum of what people think of each, -1 to 1; None as above."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Answers of promql checks by name; one that gave no single finite number is absent."""
    problems: Mapping[str, Missing] = field(default_factory=dict)
    """Why a check has no answer, by name; "" speaks for all checks of the arm."""


@dataclass(frozen=True, slots=True)
class ShadowEvidence:
    """Counters of one arm since its shadow step began, summed over its pods."""

    compared: float = 0.0
    agreed: float = 0.0
    errors: float = 0.0
    lost: float = 0.0
    """Copies that never arrived."""
    episodes: float | None = None
    """Episodes that stable has opened since; None: the copies are of requests that know no episodes."""
    within: Mapping[float, float] = field(default_factory=dict)
    """Copies answered within each bound in seconds; the bound infinity counts all of them."""
    scraped_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    gap: int = 0
    """Pods that ran before the step and without a sample from then."""
    broken: str = ""
    """The counter that is not a number, in half a sentence: then none of them speaks."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence by revision, or the reason why there is none at all."""

    arms: Mapping[str, ArmEvidence] = field(default_factory=dict)
    unavailable: str = ""
    reason: str = reasons.PROVIDER_DOWN
    """The kind of unavailability."""
    clock: datetime | None = None
    """Prometheus' own clock when it answered."""
    shadow: ShadowEvidence | None = None
    """Of the arm in shadow, since its step began; None when none is."""


class Verdict(Enum):
    """HOLD is neither good nor bad: it waits."""

    PASS = "pass"
    BREACH = "breach"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Check:
    """One threshold's verdict with the sentence that goes to status and events."""

    verdict: Verdict
    sentence: str
    reason: str = reasons.NOT_ENOUGH_DATA
    """Why it holds, if it does."""


def lost(pods: int, whose: str) -> Missing | None:
    """Why an arm's numbers are not those of its window; None where they are. What such an arm breaks by itself it has
    broken since its first sample; it is not compared, and passes nothing."""
    if not pods:
        return None
    text = (
        f"Prometheus has no samples from when this comparison began of {pods} pod{'' if pods == 1 else 's'} of {whose} "
        "that ran then. It was restarted without its data, did not scrape, or keeps less than the rollout lasts; "
        "`kubectl learnloop restart` starts the comparison over"
    )
    return Missing(reasons.EVIDENCE_GAP, text)


def ordinal(quantile: float) -> str:
    """`0.99` as 99th, `0.995` as 99.5th."""
    return f"{quantile * 100:.4g}th"


def hold(sentence: str, reason: str = reasons.NOT_ENOUGH_DATA) -> Check:
    """Neither good nor bad, and why."""
    return Check(Verdict.HOLD, sentence, reason)


def count(episodes: int) -> str:
    """`1 episode`, `2 episodes`."""
    return f"{episodes} episode{'' if episodes == 1 else 's'}"


def number(value: float) -> str:
    """Three digits where they tell something."""
    if value == 0 or abs(value) >= 10:
        return f"{value:.1f}".removesuffix(".0") if value else "0"
    return f"{value:.3g}"


# Samples that tell of another time than now: clocks that differ, or pods that are not scraped any more.
#
# What they tell against an arm still counts, for it was seen; they pass no step and let no arm win.


SKEW = timedelta(seconds=30)
"""Clocks that differ by more cannot say which episode ended in which step."""
STALE = timedelta(seconds=150)
"""Two scrapes at the longest usual interval, a minute, and some."""


def untimely(clock: datetime | None, scraped_at: datetime | None, now: datetime, whose: str) -> Missing | None:
    """Why the samples of `whose` arm are of another time; None while they are of now, or nothing is known of it.

    `clock`: Prometheus' own when it answered; `scraped_at`: when, by that clock, the arm was last scraped as a whole.
    """
    if clock is not None and abs(clock - now) > SKEW:
        ahead = (clock - now).total_seconds()
        text = (
            f"Prometheus' clock is about {duration(rough(abs(ahead)))} {'ahead of' if ahead > 0 else 'behind'} "
            "the operator's: synchronise the clocks of their nodes"
        )
        return Missing(reasons.CLOCK_SKEW, text)
    if scraped_at is None:
        return None
    age = (clock or now) - scraped_at
    if age < -SKEW:
        text = f"{whose}'s last sample is about {duration(rough(-age.total_seconds()))} in the future"
        return Missing(reasons.CLOCK_SKEW, text)
    if age > STALE:
        text = f"a pod of {whose} was last scraped about {duration(rough(age.total_seconds()))} ago"
        return Missing(reasons.STALE_SAMPLES, text)
    return None


# The port through which evidence comes: what a decision asks about its arms, and who may answer.
#
# Prometheus is one implementation, and the data plane adds what only it knows (prometheus/gather_evidence.py).


POD_LABEL = "pod"
"""The label that has a server's pod, set by Prometheus and not by the one that is scraped."""


class ExtraSeries(Enum):
    """Series that only some types of metrics need, in addition to the counters of episodes."""

    LATENCY = "requests by duration"
    REWARDS = "rewarded episodes and their raw rewards"
    OPINIONS = "rated episodes and what people think of them"


@dataclass(frozen=True, slots=True)
class Window:
    """Ask for `revision` over the last `seconds`."""

    revision: str
    seconds: int


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """Everything that one look at a ModelDeployment has to know of its arms."""

    namespace: str
    name: str
    windows: tuple[Window, ...]
    metrics: tuple[MetricThreshold, ...]
    lately_seconds: int = 0
    """Count the episodes of so many seconds apart, to tell whether any come at all; 0: do not."""
    deadline_seconds: int = 0
    """Tell what became of the episodes that were opened longer ago than this; 0: do not."""

    def by_seconds(self) -> Mapping[int, list[str]]:
        """The revisions that are asked about the same number of seconds."""
        return {
            seconds: [window.revision for window in self.windows if window.seconds == seconds]
            for seconds in dict.fromkeys(window.seconds for window in self.windows)
        }


class EvidenceSource(Protocol):
    """A place that knows what the arms of a rollout have done. No method raises: what cannot be had is said in the
    evidence itself."""

    async def of_episodes(self, request: EvidenceRequest) -> Evidence:
        """Evidence of every window's arm."""
        ...

    async def of_copies(self, namespace: str, name: str, window: Window) -> Evidence:
        """Evidence of an arm in shadow, by the copies of requests that it got."""
        ...
