"""The content of a report, and its time."""

from datetime import UTC, datetime, timedelta

import pytest

from learnloop_dataplane.notifications import webhook_outbox
from learnloop_dataplane.notifications.daily_reports import MOST_EACH, due, report

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


def of(*happened: tuple[str, dict], waiting=()) -> dict | None:
    return report("ns", UNTIL - timedelta(days=1), UNTIL, happened, waiting)


@pytest.mark.parametrize(
    ("now", "wanted"), [("2026-03-04T08:00", "2026-03-04T07:00"), ("2026-03-04T06:59", "2026-03-03T07:00")]
)
def test_reports_are_due_at_their_hour(now: str, wanted: str) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert due(moment, 7) == datetime.fromisoformat(wanted).replace(tzinfo=UTC)


def test_a_report_counts_and_lists_runs_models_and_open_approvals() -> None:
    waits = {"model_deployment": "w", "revision": "1"}
    text = of((STATUS, BETTER), (STATUS, FAILED), (DEPLOYED, TAKEN), waiting=[waits])
    counts = "1 of 2 runs passed their gates, 0 models were deployed, 1 were rolled back, 1 wait for approval."
    assert text["text"] == f"ns, 2026-03-01 to 2026-03-02: {counts}"
    listed = [text[part] for part in ("proven", "failed", "deployed", "rolled_back", "waiting")]
    assert listed == [[BETTER], [FAILED], [], [TAKEN], [waits]]
    assert webhook_outbox.sentence("report.daily", text) == text["text"]


def test_a_period_without_events_has_no_report_and_a_full_one_is_cut_and_counted() -> None:
    assert of() is None
    assert of((STATUS, {"job": "x", "status": "running"})) is None
    many = of(*[(STATUS, FAILED)] * (MOST_EACH + 5))
    assert len(many["failed"]) == MOST_EACH
    assert f"0 of {MOST_EACH + 5} runs" in many["text"]


def test_a_report_that_does_not_count_all_says_so() -> None:
    for cut in (False, True):
        text = report("ns", UNTIL - timedelta(days=1), UNTIL, [(STATUS, BETTER)], (), cut=cut)
        assert ("newest 2,000 events of that time" in text["text"]) is cut
