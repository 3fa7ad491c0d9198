"""Reports of gate suites: numbers are numbers, and nothing else is read."""

import json

import pytest

from learnloop_dataplane.registry.deployments import read_report

DETECTOR = {"name": "d", "sha256": "a" * 64, "positives": 9, "negatives": 9, "true_positives": 9, "false_positives": 0}
GOOD = {"suite": "refusal", "revision": "1a2b3c4d", "n": 300, "failures": {"yielded": 300}, "detector": DETECTOR}
BODY = json.dumps(GOOD)


def test_a_whole_report_is_read() -> None:
    report, problem = read_report(BODY.encode())
    assert (report.failed, problem) == (300, "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
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
def test_other_bytes_are_not_a_report(body: str, why: str) -> None:
    report, problem = read_report(body.encode())
    assert report is None
    assert why in problem
