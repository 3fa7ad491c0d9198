"""The verdict on one suite: it passes by a whole, timely report whose bound holds, and by nothing else."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from learnloop_api.kinds.rollouts.gates import GateSuite
from learnloop_api.wire.deployment import GateReport, StoredReport
from learnloop_operator.statistics.fixed_sample_bounds import (
    gap_upper,
    paired_rate_upper,
    paired_score_upper,
    rate_upper,
)

GRACE = 30.0
"""Seconds between the end of a Job and the moment when its report must be readable."""
JobPhase = Literal["absent", "active", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """State of one suite's Job and its report."""

    phase: JobPhase = "absent"
    message: str = ""
    """Why it failed, or why its pod does not start."""
    ended_at: datetime | None = None
    report: StoredReport | None = None


@dataclass(frozen=True, slots=True)
class SuiteFinding:
    """The verdict on one suite, in numbers and in a sentence; `pending` while neither can be said."""

    verdict: Literal["pending", "passed", "failed"]
    message: str
    samples: int | None = None
    failures: int | None = None
    bound: float | None = None
    limit: float | None = None
    report: str | None = None


def judge_suite(
    suite: GateSuite, run: SuiteRun, revision: str, *, waited: float, baseline: bool, seconds: float, now: datetime
) -> SuiteFinding:
    """The verdict on one suite.

    Args:
        waited: seconds since its Job was due.
        baseline: whether another model serves, with which the candidate can be compared.
        seconds: the suite's timeout.
    """
    if run.report is not None:
        # The suite had ended well when its pod delivered this. A mesh's sidecar may keep the pod from ending.
        report, sha256 = run.report.report, run.report.sha256
        if report is None:
            return _failed(f"its report cannot be read: {run.report.problem or 'invalid report'}", sha256)
        return _read(suite, report, sha256, revision, baseline)
    if run.phase == "failed":
        return _failed(f"its Job failed: {run.message or 'it gave no reason'}")
    if waited > seconds + GRACE:
        return _failed(f"no report within {suite.timeout}")
    if run.phase != "succeeded":
        return SuiteFinding("pending", run.message or "it runs")
    since = (now - run.ended_at).total_seconds() if run.ended_at else 0.0
    if since < GRACE:
        return SuiteFinding("pending", "its Job has ended; waiting for the report")
    return _failed("its Job ended without a report")


def _read(suite: GateSuite, report: GateReport, sha256: str, revision: str, baseline: bool) -> SuiteFinding:
    """The verdict on a report that is there."""
    problem = _flaw(suite, report, revision)
    if problem:
        return _failed(problem, sha256, report)
    kind, limit = suite.bound
    if kind == "difference" and not baseline:
        text = f"{report.n} tasks; nothing serves yet, so there is nothing to be worse than"
        return SuiteFinding("passed", text, report.n, report.failed, None, limit, sha256)
    try:
        bound, text = _BOUNDS[kind](suite, report)
    except _Unfit as unfit:
        return _failed(str(unfit), sha256, report)
    # What a detector misses of its labelled set, it misses of the answers too.
    recall = report.detector.recall
    whole = min(1.0, bound / recall) if recall else 1.0
    missed = f", {whole:.2%} with what its detector misses" if recall < 1.0 else ""
    passed = whole <= limit
    verdict = f"{text}; at most {bound:.2%} at {suite.confidence:.0%}{missed}, allowed {limit:.2%}"
    return SuiteFinding(
        "passed" if passed else "failed", verdict, report.n, report.failed, round(whole, 6), limit, sha256
    )


def _flaw(suite: GateSuite, report: GateReport, revision: str) -> str:
    """Why the report proves nothing about this candidate and suite; "" where it is."""
    detector = report.detector
    if report.suite != suite.name:
        return f"its report is of suite {report.suite!r}, not {suite.name!r}"
    if report.revision != revision:
        return f"its report is about revision {report.revision!r}, the candidate is {revision}"
    if suite.detector_sha256 is not None and detector.sha256 != suite.detector_sha256:
        return f"its detector {detector.name} has the digest {detector.sha256[:12]}…, not {suite.detector_sha256[:12]}…"
    if detector.positives == 0 or detector.negatives == 0:
        return f"its detector {detector.name} was tried on no labelled set of both kinds"
    if detector.precision < suite.min_precision:
        return f"its detector {detector.name} has a precision of {detector.precision:.2f}, below {suite.min_precision}"
    if detector.recall < suite.min_recall:
        return f"its detector {detector.name} has a recall of {detector.recall:.2f}, below {suite.min_recall}"
    if report.errors:
        return f"{report.errors} of its requests got no answer"
    if report.n < suite.samples:
        return f"{report.n} of {suite.samples} samples were judged"
    return ""


class _Unfit(Exception):
    """The report lacks what this bound is computed from."""


def _rate(suite: GateSuite, report: GateReport) -> tuple[float, str]:
    bound = rate_upper(report.failed, report.n, suite.confidence)
    worst = ", ".join(f"{name} {count}" for name, count in sorted(report.failures.items()) if count)
    return bound, f"{report.failed} of {report.n} failed{f' ({worst[:200]})' if worst else ''}"


def _gap(suite: GateSuite, report: GateReport) -> tuple[float, str]:
    result = report.by_group
    if result is None:
        raise _Unfit("its report compares no groups: by_group is missing, and maxGap needs it")
    if len(result.rows) < suite.samples:
        raise _Unfit(f"by_group has {len(result.rows)} prompts, {suite.samples} are needed")
    bound, (one, other) = gap_upper(result.rows, suite.confidence)
    rates = [sum(row[column] for row in result.rows) / len(result.rows) for column in (one, other)]
    return bound, f"{result.groups[one]} {rates[0]:.2%} against {result.groups[other]} {rates[1]:.2%} of failures"


def _difference(suite: GateSuite, report: GateReport) -> tuple[float, str]:
    pairs = report.pairs
    if pairs is None:
        raise _Unfit("its report has no pairs of scores, and nonInferiority needs them")
    if len(pairs) < suite.samples:
        raise _Unfit(f"its report has {len(pairs)} pairs, {suite.samples} are needed")
    own, other = (sum(pair[side] for pair in pairs) / len(pairs) for side in (0, 1))
    text = f"score {own:.3f} against {other:.3f} of what serves, on {len(pairs)} tasks"
    if all(score in (0.0, 1.0) for pair in pairs for score in pair):
        worse, better = pairs.count((0.0, 1.0)), pairs.count((1.0, 0.0))
        return paired_rate_upper(worse, better, len(pairs), suite.confidence), text
    return paired_score_upper([own_counts[1] - own_counts[0] for own_counts in pairs], suite.confidence), text


_BOUNDS = {"rate": _rate, "gap": _gap, "difference": _difference}


def _failed(why: str, sha256: str | None = None, report: GateReport | None = None) -> SuiteFinding:
    samples, failures = (report.n, report.failed) if report else (None, None)
    return SuiteFinding("failed", f"not passed: {why}"[:1000], samples, failures, report=sha256)
