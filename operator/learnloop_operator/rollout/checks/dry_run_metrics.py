"""Metrics that only report: what they would have done is told once, and nothing follows from it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.core.plan import Notice
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence.arm_evidence import Check, Verdict, number
from learnloop_operator.statistics.comparison import Claim

DryRunVerdict = Literal["fine", "worse", "undecided"]
WORDS: dict[Verdict, DryRunVerdict] = {Verdict.PASS: "fine", Verdict.BREACH: "worse", Verdict.HOLD: "undecided"}


@dataclass(frozen=True, slots=True)
class DryRunReport:
    """The verdict of one dry run. The sentence has numbers that change at every look, so it is not persisted."""

    name: str
    claim: str
    verdict: DryRunVerdict
    sentence: str = field(default="", compare=False)


def verdict_of(found: Claim) -> DryRunVerdict:
    """A test's claim in the words of the status."""
    words: dict[Claim, DryRunVerdict] = {Claim.FINE: "fine", Claim.WORSE: "worse", Claim.UNDECIDED: "undecided"}
    return words[found]


def report(metric: MetricThreshold, check: Check, claim: str) -> DryRunReport:
    """What a dry run says at this look."""
    return DryRunReport(metric.name, claim, WORDS[check.verdict], check.sentence)


def bounds_text(metric: MetricThreshold) -> str:
    """The bounds of a threshold in words."""
    return _in_words(metric.type, metric.min, metric.max, metric.min_ratio, metric.max_ratio)


@lru_cache(maxsize=1024)
def _in_words(
    kind: str, least: float | None, most: float | None, least_ratio: float | None, most_ratio: float | None
) -> str:
    bounds = (
        ("at least", least, ""),
        ("at most", most, ""),
        ("at least", least_ratio, "× stable"),
        ("at most", most_ratio, "× stable"),
    )
    said = [f"{word} {number(bound)}{unit}" for word, bound, unit in bounds if bound is not None]
    return f"{kind} {' and '.join(said)}"


def remark(reports: Iterable[DryRunReport]) -> str:
    """Half a sentence for the verdict; without numbers, which would be written at every look."""
    worse = [item.name for item in reports if item.verdict == "worse"]
    return f"; dry run: {', '.join(worse)} would roll it back" if worse else ""


def notices(before: Iterable[DryRunReport], after: Iterable[DryRunReport]) -> tuple[Notice, ...]:
    """One event for each dry run that now would act and did not before."""
    known = {(item.name, item.claim) for item in before if item.verdict == "worse"}
    fresh = [item for item in after if item.verdict == "worse" and (item.name, item.claim) not in known]
    text = "dry run, nothing follows: {}"
    return tuple(Notice("Warning", reasons.DRY_RUN_BREACH, text.format(item.sentence)[:1024]) for item in fresh)
