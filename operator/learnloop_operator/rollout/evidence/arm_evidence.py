"""What is known of each arm, and what a check answers: missing data is a state of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence.shadow_evidence import ShadowEvidence
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.latency import Histogram


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no number: a reason constant and half a sentence."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Drift:
    """Returns of one arm: in this step, or since its promotion, and in this rollout before that."""

    before: Histogram = field(default_factory=dict)
    now: Histogram = field(default_factory=dict)


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
    returns: Histogram = field(default_factory=dict)
    """Ended episodes by their return; asked where a bound of returns has no returnRange."""
    seen_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    lately: int | None = None
    """Episodes that ended within the last progressDeadlineSeconds; None where nobody asked."""
    gap: int = 0
    """Pods that counted before the window began and of which there is no sample from then."""
    openings: Openings | None = None
    """None where nobody counts openings: an arm that is asked by requests without episodes."""
    drift: Drift | None = None
    """Set where a drift check asks for it."""
    rewards: Counts | None = None
    """Rewarded episodes and the sum of their raw rewards; None where nobody asked, or no answer came."""
    opinions: Counts | None = None
    """Rated episodes and the sum of what people think of each, -1 to 1; None as above."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Answers of promql checks by name; one that gave no single finite number is absent."""
    events: Mapping[str, Counts] = field(default_factory=dict)
    """All events and the good ones of sequential promql checks, by name."""
    problems: Mapping[str, Missing] = field(default_factory=dict)
    """Why a check has no answer, by name; "" speaks for all checks of the arm."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence by revision, or the reason why there is none at all."""

    arms: Mapping[str, ArmEvidence] = field(default_factory=dict)
    unavailable: str = ""
    reason: str = reasons.PROVIDER_DOWN
    """What kind of unavailable."""
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
    of_both: bool = False
    """Whether it holds for want of episodes of both arms: those of one alone may never decide it."""


def lost(pods: int, whose: str) -> Missing | None:
    """Why an arm's numbers are not those of its window; None where they are. What such an arm breaks by itself it has
    broken since its first sample; it is not compared, and passes nothing."""
    if not pods:
        return None
    text = (
        f"Prometheus has no samples from when this comparison began of {pods} pod{'' if pods == 1 else 's'} of {whose} "
        "that ran then. It was restarted without its data, did not scrape, or keeps less than the rollout lasts; "
        "`kubectl learnloop restart` compares anew"
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
