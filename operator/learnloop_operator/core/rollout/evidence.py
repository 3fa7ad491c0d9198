"""What is known of each arm, and what one check makes of it.

Missing data is a state of its own: a check answers PASS or BREACH only when both arms have spoken often enough.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.shadow_evidence import ShadowEvidence
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.latency import Histogram, quantile_of

NOUN: Mapping[str, str] = {"success": "success rate", "return": "return", "errors": "error rate", "drift": "return"}
P99 = 0.99


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
class ArmEvidence:
    """One arm over one window. Rates are shares in 0..1, latency is in seconds, returns are undiscounted sums."""

    episodes: int = 0
    mean_return: float | None = None
    success_rate: float | None = None
    error_rate: float | None = None
    latency: Histogram = field(default_factory=dict)
    """Requests of policies by their duration in seconds."""
    seen_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    lately: int | None = None
    """Episodes that ended within the last progressDeadlineSeconds; None where nobody asked."""
    gap: int = 0
    """Pods that counted before the window began and of which there is no sample from then."""
    drift: Drift | None = None
    """Set where a drift check asks for it."""
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


def lost(pods: int, whose: str) -> Missing | None:
    """Why an arm's numbers are not those of its window; None where they are. What such an arm breaks by itself it has
    broken since its first sample; it is not compared, and passes nothing."""
    if not pods:
        return None
    text = (
        f"Prometheus has no samples from when this comparison began of {pods} pod{'' if pods == 1 else 's'} of {whose} "
        "that ran then: it was restarted without its data, did not scrape, or keeps less than the rollout lasts; "
        "`kubectl learnloop restart` compares anew"
    )
    return Missing(reasons.EVIDENCE_GAP, text)


def noun_of(metric: MetricThreshold) -> str:
    """What the metric measures, in a sentence."""
    if metric.type == "promql":
        return metric.name
    if metric.type == "latency":
        return f"{ordinal(metric.quantile or P99)} percentile latency"
    return NOUN[metric.type]


def ordinal(quantile: float) -> str:
    """`0.99` as 99th, `0.995` as 99.5th."""
    return f"{quantile * 100:.4g}th"


def check(
    metric: MetricThreshold,
    subject: ArmEvidence | None,
    reference: ArmEvidence | None,
    *,
    subject_is: str = "the canary",
    reference_is: str = "stable",
) -> Check:
    """Judge the arm that must prove itself against one threshold.

    A ratio is measured from the reference in units of its size, so that it keeps its meaning for negative returns:
    the bar is `reference + (ratio - 1) * |reference|`.
    """
    noun = noun_of(metric)
    episodes = subject.episodes if subject else 0
    if subject is None:
        text = f"{noun}: Prometheus has no series of {subject_is} yet, 0 of {metric.min_episodes} episodes needed"
        return hold(text, reasons.EMPTY_RESULT)
    if episodes < metric.min_episodes:
        return hold(f"{noun}: {subject_is} has {episodes} of {metric.min_episodes} episodes needed")
    value = _value(metric, subject)
    if value is None:
        return _mute(metric, noun, subject, subject_is)
    for bar, low, text in ((metric.min, True, "at least"), (metric.max, False, "at most")):
        if bar is not None and (value < bar if low else value > bar):
            return Check(
                Verdict.BREACH,
                f"{noun} of {subject_is} {number(value)} over {count(episodes)}; bar {text} {number(bar)}",
            )
    if gap := lost(subject.gap, subject_is):
        return hold(f"{noun}: {gap.text}", gap.reason)
    if metric.min_ratio is None and metric.max_ratio is None:
        return Check(Verdict.PASS, f"{noun} of {subject_is} {number(value)}")
    return _against(metric, noun, value, subject, reference, subject_is, reference_is)


def _against(
    metric: MetricThreshold,
    noun: str,
    value: float,
    subject: ArmEvidence,
    reference: ArmEvidence | None,
    subject_is: str,
    reference_is: str,
) -> Check:
    known = reference.episodes if reference else 0
    if reference is None or known < metric.min_episodes:
        text = f"{noun}: {reference_is} has {known} of {metric.min_episodes} episodes needed to compare with"
        return hold(text, reasons.NOT_ENOUGH_DATA if reference else reasons.EMPTY_RESULT)
    base = _value(metric, reference)
    if base is None:
        return _mute(metric, noun, reference, reference_is)
    if gap := lost(reference.gap, reference_is):
        return hold(f"{noun}: {gap.text}", gap.reason)
    numbers = f"{noun} of {subject_is} {number(value)} vs {number(base)} of {reference_is}"
    for ratio, low in ((metric.min_ratio, True), (metric.max_ratio, False)):
        if ratio is None:
            continue
        bar = base + (ratio - 1) * abs(base)
        if value < bar if low else value > bar:
            return Check(Verdict.BREACH, f"{numbers} over {count(subject.episodes)}; bar {number(ratio)}×")
    return Check(Verdict.PASS, numbers)


def _value(metric: MetricThreshold, arm: ArmEvidence) -> float | None:
    value = _raw(metric, arm)
    return value if value is not None and math.isfinite(value) else None


def _raw(metric: MetricThreshold, arm: ArmEvidence) -> float | None:
    match metric.type:
        case "success":
            return arm.success_rate
        case "return":
            return arm.mean_return
        case "errors":
            return arm.error_rate
        case "latency":
            return quantile_of(arm.latency, metric.quantile or P99)
    return arm.custom.get(metric.name)


def _mute(metric: MetricThreshold, noun: str, arm: ArmEvidence, arm_is: str) -> Check:
    """No number: the reason that is on record, or that of the number itself."""
    problem = arm.problems.get(metric.name) or arm.problems.get("")
    if problem is None:
        found = _raw(metric, arm)
        problem = Missing(reasons.EMPTY_RESULT, "nothing was counted")
        if found is not None:
            problem = Missing(reasons.NOT_A_NUMBER, f"it is {found}")
    return hold(f"{noun}: no number for {arm_is} over {count(arm.episodes)} ({problem.text})", problem.reason)


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
