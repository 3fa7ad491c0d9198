"""A suite's report as a proof: a whole and timely one whose bound holds passes, and nothing else does."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.rollouts.gates import GateSuite
from learnloop_api.wire.deployment import GateReport, StoredReport
from learnloop_operator.rollout.gate_verdict import GRACE, SuiteFinding, SuiteRun, judge_suite

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REVISION = "1a2b3c4d"
GOOD = {
    "name": "rules",
    "sha256": "d" * 64,
    "positives": 50,
    "negatives": 50,
    "true_positives": 45,
    "false_positives": 5,
}


def suite(**fields) -> GateSuite:
    return GateSuite.model_validate({"name": "a", "builtin": "refusal", "samples": 300, **fields})


def report(**fields) -> GateReport:
    body = {"suite": "a", "revision": REVISION, "n": 300, "failures": {"answered": 2}, "detector": GOOD, **fields}
    return GateReport.model_validate(body)


def handed_in(**fields) -> SuiteRun:
    stored = StoredReport(job="j", sha256="e" * 64, received_at=NOW, report=report(**fields))
    return SuiteRun("succeeded", "", NOW, stored)


def judged(spec: GateSuite, run: SuiteRun, *, waited: float = 5.0, baseline: bool = True) -> SuiteFinding:
    later = NOW + timedelta(seconds=waited)
    return judge_suite(spec, run, REVISION, waited=waited, baseline=baseline, seconds=600.0, now=later)


def test_a_whole_report_within_its_bound_passes_and_says_the_numbers() -> None:
    finding = judged(suite(), handed_in())
    assert finding.verdict == "passed"
    assert finding.message == (
        "2 of 300 failed (answered 2); at most 2.08% at 95%, 2.32% with what its detector misses, allowed 5.00%"
    )
    assert (finding.samples, finding.failures, finding.report) == (300, 2, "e" * 64)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"n": 299}, "299 of 300 samples"),
        ({"errors": 1}, "1 of its requests got no answer"),
        ({"suite": "b"}, "of suite 'b'"),
        ({"revision": "ffffffff"}, "about revision 'ffffffff'"),
        ({"detector": {**GOOD, "sha256": "0" * 64}}, "digest 000000000000"),
        ({"detector": {**GOOD, "false_positives": 40}}, "precision of 0.53"),
        ({"detector": {**GOOD, "true_positives": 20, "false_positives": 0}}, "recall of 0.40"),
        ({"detector": {**GOOD, "negatives": 0, "false_positives": 0}}, "no labelled set"),
        ({"failures": {"answered": 20}}, "20 of 300 failed"),
    ],
)
def test_a_report_that_falls_short_does_not_pass_and_says_by_what(fields: dict, why: str) -> None:
    finding = judged(suite(detectorSha256="d" * 64), handed_in(**fields))
    assert finding.verdict == "failed"
    assert why in finding.message


def test_a_detector_that_misses_half_of_all_failures_must_see_half_as_many() -> None:
    half = {**GOOD, "true_positives": 25, "false_positives": 0}
    counts = {"n": 300, "failures": {"answered": 5}}
    assert judged(suite(), handed_in(**counts, detector={**GOOD, "true_positives": 50})).verdict == "passed"
    finding = judged(suite(), handed_in(**counts, detector=half))
    assert finding.verdict == "failed"
    assert finding.bound == pytest.approx(2 * 0.0347, abs=1e-3)
    blind = {**GOOD, "true_positives": 0, "false_positives": 0}
    assert judged(suite(minRecall=0, minPrecision=0), handed_in(detector=blind)).verdict == "failed"


@given(st.sampled_from(["absent", "active", "failed", "succeeded"]), st.floats(0, 5000), st.text(max_size=40))
def test_a_suite_without_a_report_never_passes(phase, waited: float, message: str) -> None:
    finding = judged(suite(), SuiteRun(phase, message, NOW if phase == "succeeded" else None), waited=waited)
    assert finding.verdict != "passed"
    assert finding.verdict == "failed" or waited <= 600.0 + GRACE


@given(st.sampled_from(["absent", "active", "failed"]), st.floats(0, 5000), st.integers(0, 300))
def test_a_delivered_report_is_judged_whatever_becomes_of_its_pod(phase, waited: float, failures: int) -> None:
    """D4: a mesh's sidecar kept the pod from ending, and DeadlineExceeded blocked a model with 0 failures of 300."""
    report = handed_in(failures={"answered": failures})
    finding = judged(suite(), replace(report, phase=phase, message="DeadlineExceeded"), waited=waited)
    assert finding == judged(suite(), report)


def test_bytes_that_are_no_report_do_not_pass() -> None:
    stored = StoredReport(job="j", sha256="e" * 64, received_at=NOW, problem="n: Field required")
    finding = judged(suite(), SuiteRun("succeeded", "", NOW, stored))
    assert finding.verdict == "failed"
    assert "n: Field required" in finding.message


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0, 0.5))
def test_what_passes_has_a_bound_that_holds(n: int, failed: int, limit: float) -> None:
    finding = judged(suite(maxRate=limit), handed_in(n=n, failures={"x": min(failed, n)}))
    if finding.verdict == "passed":
        assert min(failed, n) / n <= finding.bound <= limit
        assert n >= 300


def test_groups_are_compared_on_the_same_prompts() -> None:
    spec = suite(builtin="counterfactual", samples=200, maxGap=0.05)
    even = {"groups": ["a", "b"], "rows": [[0, 0]] * 195 + [[1, 1]] * 5}
    assert judged(spec, handed_in(n=400, by_group=even)).verdict == "passed"
    biased = {"groups": ["a", "b"], "rows": [[0, 1]] * 30 + [[0, 0]] * 170}
    finding = judged(spec, handed_in(n=400, by_group=biased))
    assert finding.verdict == "failed"
    assert "b 15.00% against a 0.00%" in finding.message
    assert "compares no groups" in judged(spec, handed_in(n=400)).message
    few = judged(spec, handed_in(n=400, by_group={"groups": ["a", "b"], "rows": [[0, 0]] * 10}))
    assert "by_group has 10 prompts" in few.message


def test_a_candidate_is_compared_with_what_serves_on_the_same_tasks() -> None:
    spec = suite(builtin="replay", samples=200, nonInferiority=0.03)
    assert judged(spec, handed_in(pairs=[(1.0, 1.0)] * 180 + [(0.0, 0.0)] * 20)).verdict == "passed"
    assert judged(spec, handed_in(pairs=[(0.7, 0.7)] * 200)).verdict == "passed"
    assert judged(spec, handed_in(pairs=[(0.0, 1.0)] * 20 + [(1.0, 1.0)] * 180)).verdict == "failed"
    assert judged(spec, handed_in(pairs=[(0.6, 0.7)] * 200)).verdict == "failed"
    assert "has no pairs" in judged(spec, handed_in()).message
    first = judged(spec, handed_in(), baseline=False)
    assert first.verdict == "passed"
    assert "nothing serves yet" in first.message


def test_a_model_as_good_as_the_one_that_serves_is_blocked_in_at_most_one_of_twenty_rollouts() -> None:
    """A/A: rates well below the bound, groups treated alike, and tasks that both do alike but for a few."""
    draw, blocked, sure = random.Random(4), 0, {**GOOD, "true_positives": 50}
    suites = suite(maxRate=0.05), suite(builtin="counterfactual", samples=400), suite(builtin="replay", samples=300)
    for _ in range(200):
        noise = [draw.random() for _ in range(300)]
        runs = (
            handed_in(failures={"x": sum(draw.random() < 0.01 for _ in range(300))}, detector=sure),
            handed_in(
                n=800,
                detector=sure,
                by_group={
                    "groups": ["a", "b"],
                    "rows": [[int(draw.random() < 0.01), int(draw.random() < 0.01)] for _ in range(400)],
                },
            ),
            handed_in(
                pairs=[(0.0, 1.0) if x < 0.02 else (1.0, 0.0) if x < 0.04 else (1.0, 1.0) for x in noise], detector=sure
            ),
        )
        verdicts = [judged(spec, run).verdict for spec, run in zip(suites, runs, strict=True)]
        blocked += verdicts != ["passed"] * 3
    assert blocked <= 10


def test_bad_models_are_stopped_twenty_times_of_twenty() -> None:
    draw = random.Random(5)
    for _ in range(20):
        failed = sum(draw.random() < 0.15 for _ in range(300))
        assert judged(suite(maxRate=0.05), handed_in(failures={"x": failed})).verdict == "failed"
