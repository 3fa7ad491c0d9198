"""What is read as a report of a gate suite: one that says each thing once, and numbers as numbers."""

import json

import pytest

from learnloop_dataplane.registry.deployments import _gate_reports_read

DETECTOR = {
    "name": "d",
    "sha256": "a" * 64,
    "positives": 9,
    "negatives": 9,
    "true_positives": 9,
    "false_positives": 0,
}
GOOD = {"suite": "refusal", "revision": "1a2b3c4d", "n": 300, "failures": {"yielded": 300}, "detector": DETECTOR}
BODY = json.dumps(GOOD)


def test_a_whole_report_is_read() -> None:
    report, problem = _gate_reports_read(BODY.encode())
    assert report is not None
    assert (report.failed, problem) == (300, "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (BODY.replace('"yielded": 300', '"yielded": 300, "yielded": 0'), "yielded: it stands in an object twice"),
        (BODY[:-1] + ', "failures": {}}', "failures: it stands in an object twice"),
        (BODY.replace('"n": 300', '"n": "300"'), "n: Input should be a valid integer"),
        (BODY.replace('"n": 300', '"n": true'), "n: Input should be a valid integer"),
        (json.dumps(GOOD | {"examples": ["a\0b"]}), "a text has a NUL character"),
        ("[" * 100_000, "report.json"),
        (BODY + BODY, "report.json"),
        ("", "report.json"),
        (BODY.replace('"n": 300', '"n": NaN'), "n"),
        (BODY[:-1] + ', "seconds": 1e999}', "seconds"),
        (BODY[:-1] + ', "x": [' + "{}," * 300_000 + "{}]}", "more than 250000 objects"),
        (BODY[:-1] + "".join(f', "k{at}": 1' for at in range(2000)) + "}", "2000 faults"),
    ],
)
def test_what_says_a_thing_twice_or_otherwise_is_no_report(body: str, why: str) -> None:
    report, problem = _gate_reports_read(body.encode())
    assert report is None
    assert why in problem
