"""What is known of each arm, and what one check makes of it.

Missing data is a state of its own: a check answers PASS or BREACH only when both arms have spoken often enough.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from learnloop_api.kinds.analysis import MetricThreshold

NOUN: Mapping[str, str] = {
    "success": "success rate",
    "return": "return",
    "errors": "error rate",
    "latency": "99th percentile latency",
    "promql": "value",
}


@dataclass(frozen=True, slots=True)
class ArmEvidence:
    """One arm over one window. Rates are shares in 0..1, latency is in seconds, returns are undiscounted sums."""

    episodes: int = 0
    mean_return: float | None = None
    success_rate: float | None = None
    error_rate: float | None = None
    p99_seconds: float | None = None
    seen_at: datetime | None = None
    """When the pod that was scraped longest ago was scraped, by Prometheus' clock."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Answers of promql checks by name; one that gave no single finite number is absent."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a promql check has no answer, by name."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence by revision, or the reason why there is none at all."""

    arms: Mapping[str, ArmEvidence] = field(default_factory=dict)
    unavailable: str = ""


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
    noun = metric.name if metric.type == "promql" else NOUN[metric.type]
    episodes = subject.episodes if subject else 0
    if subject is None or episodes < metric.min_episodes:
        return _hold(f"{noun}: {subject_is} has {episodes} of {metric.min_episodes} episodes needed")
    value = _value(metric, subject)
    if value is None:
        return _hold(f"{noun}: no number for {subject_is} over {count(episodes)}{_why(metric, subject)}")
    for bar, low, text in ((metric.min, True, "at least"), (metric.max, False, "at most")):
        if bar is not None and (value < bar if low else value > bar):
            return Check(
                Verdict.BREACH,
                f"{noun} of {subject_is} {number(value)} over {count(episodes)}; bar {text} {number(bar)}",
            )
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
        return _hold(f"{noun}: {reference_is} has {known} of {metric.min_episodes} episodes needed to compare with")
    base = _value(metric, reference)
    if base is None:
        return _hold(f"{noun}: no number for {reference_is} over {count(known)}{_why(metric, reference)}")
    numbers = f"{noun} of {subject_is} {number(value)} vs {number(base)} of {reference_is}"
    for ratio, low in ((metric.min_ratio, True), (metric.max_ratio, False)):
        if ratio is None:
            continue
        bar = base + (ratio - 1) * abs(base)
        if value < bar if low else value > bar:
            return Check(Verdict.BREACH, f"{numbers} over {count(subject.episodes)}; bar {number(ratio)}×")
    return Check(Verdict.PASS, numbers)


def _value(metric: MetricThreshold, arm: ArmEvidence) -> float | None:
    value = {
        "success": arm.success_rate,
        "return": arm.mean_return,
        "errors": arm.error_rate,
        "latency": arm.p99_seconds,
        "promql": arm.custom.get(metric.name),
    }[metric.type]
    return value if value is not None and math.isfinite(value) else None


def _why(metric: MetricThreshold, arm: ArmEvidence) -> str:
    problem = arm.problems.get(metric.name)
    return f" ({problem})" if problem else ""


def _hold(sentence: str) -> Check:
    return Check(Verdict.HOLD, sentence)


def count(episodes: int) -> str:
    """`1 episode`, `2 episodes`."""
    return f"{episodes} episode{'' if episodes == 1 else 's'}"


def number(value: float) -> str:
    """Three digits where they tell something."""
    if value == 0 or abs(value) >= 10:
        return f"{value:.1f}".removesuffix(".0") if value else "0"
    return f"{value:.3g}"
