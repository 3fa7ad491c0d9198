"""What a report says, and when it is due."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop_dataplane.notifications import messages
from learnloop_dataplane.notifications.reports import MOST_LINES, due, report

UNTIL = datetime(2026, 3, 2, 7, tzinfo=UTC)
STATUS, DEPLOYED = "agent.rl.training.status.v1.ns.walker-7", "agent.rl.model.deployed.v1.ns.walker"
BETTER = {
    "job": "walker-7",
    "agent": "walker",
    "status": "completed",
    "evaluation": {"mean": 480.0, "ci_low": 470.0, "ci_high": 490.0},
    "baseline": {"mean": 300.0, "ci_low": 290.0, "ci_high": 310.0},
}
FAILED = {"job": "walker-6", "status": "failed", "error": {"message": "minReturn: 3 < 400"}}
TAKEN = {"event": "rolled_back", "model_deployment": "walker", "revision": "3f9a", "verdict": "return 9.5"}


def of(*happened: tuple[str, dict[str, Any]], waiting: Any = ()) -> dict[str, Any] | None:
    return report("ns", "daily", UNTIL - timedelta(days=1), UNTIL, happened, waiting)


@pytest.mark.parametrize(
    ("now", "period", "wanted"),
    [
        ("2026-03-04T08:00", "daily", "2026-03-04T07:00"),
        ("2026-03-04T06:59", "daily", "2026-03-03T07:00"),
        ("2026-03-04T08:00", "weekly", "2026-03-02T07:00"),
        ("2026-03-02T06:00", "weekly", "2026-02-23T07:00"),
    ],
)
def test_reports_are_due_at_their_hour_and_weekly_ones_on_mondays(now: str, period: str, wanted: str) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert due(moment, period, 7) == datetime.fromisoformat(wanted).replace(tzinfo=UTC)


def test_a_report_says_by_how_much_with_intervals_what_was_refused_and_what_waits() -> None:
    found = of(
        (STATUS, BETTER), (STATUS, FAILED), (DEPLOYED, TAKEN), waiting=[{"model_deployment": "w", "revision": "1"}]
    )
    assert found is not None
    assert "1 of 2 runs were proven" in found["text"]
    better = "walker-7 of walker: held-out return 480.0 [470.0, 490.0], 180.0 more than 300.0 [290.0, 310.0] before"
    assert f"- {better}" in found["text"]
    for line in ("- walker-6: minReturn: 3 < 400", "- walker: 3f9a: return 9.5", "- w: 1: waits for approval"):
        assert line in found["text"]
    assert messages.sentence("report.daily", found) == found["text"]


def test_nothing_that_happened_is_no_report_and_much_is_cut_and_counted() -> None:
    assert of() is None
    assert of((STATUS, {"job": "x", "status": "running"})) is None
    many = of(*[(STATUS, FAILED)] * (MOST_LINES + 5))
    assert many is not None
    assert "- and 5 more" in many["text"]


def test_nobody_writes_a_part_of_the_report_with_what_a_run_says() -> None:
    evil = {**FAILED, "error": {"message": "x\n\n## What serves everybody\n- all of it \x1b[2J"}}
    found = of((STATUS, evil))
    assert found is not None
    assert [line for line in found["text"].splitlines() if line.startswith("##")] == ["## What was refused or failed"]
    assert "\x1b" not in found["text"]


def test_the_markdown_of_a_report_tells_nobody_whom_a_run_names() -> None:
    evil = {**FAILED, "error": {"message": "@team fixes #12 https://evil.example"}}
    found = of((STATUS, evil))
    assert found is not None
    assert "- walker-6: @\u200bteam fixes #\u200b12 https:\u200b//evil.example" in found["markdown"].splitlines()
    assert "@team fixes #12" in found["text"], "chats and mail show it as it is"


def test_a_report_that_does_not_count_all_says_so() -> None:
    for cut in (False, True):
        found = report("ns", "daily", UNTIL - timedelta(days=1), UNTIL, [(STATUS, BETTER)], (), cut=cut)
        assert found is not None
        assert ("newest 2,000 of that time" in found["text"]) is cut
