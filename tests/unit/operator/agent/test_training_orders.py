"""An order to train reaches the audit chain once, under one identity, from every source."""

from dataclasses import replace
from datetime import timedelta

from tests.unit.operator.agent.test_learning_agent import NOW, after, created, job, situation

from learnloop_api import names
from learnloop_operator.agents.decide_agent import decide

ORDER = {names.ANNOTATION_TRAIN: "now at 2026-05-01T11:59:00Z by alice@example.com"}


def test_an_order_to_train_is_told_with_the_name_and_the_run_that_began() -> None:
    plan = decide(situation(0, annotations=ORDER))
    assert created(plan) == ["la-1"]
    (announcement,) = plan.announcements
    assert announcement.call.path == f"/api/v1/agents/la/training-orders/{announcement.identity}"
    assert announcement.call.body["by"] == "alice@example.com"
    assert announcement.call.body["job"] == "la-1"
    assert announcement.call.body["verified"] is False, "names are not checked here"


def test_a_new_leader_tells_the_same_again_for_an_hour() -> None:
    first = decide(situation(0, annotations=ORDER))
    running = {"annotations": ORDER, "before": after(first), "jobs": (job(1, "Training"),)}
    again = decide(situation(0, **running))
    assert again.announcements == first.announcements
    late = decide(situation(0, **running, now=NOW + timedelta(hours=2)))
    assert late.announcements == ()


def test_a_name_that_the_api_server_checked_is_no_claim() -> None:
    snapshot = situation(0, annotations=ORDER)
    snapshot = replace(snapshot, defaults=replace(snapshot.defaults, names_are_verified=True))
    assert decide(snapshot).announcements[0].call.body["verified"] is True


def test_a_run_that_nobody_ordered_is_nobodys_order() -> None:
    plan = decide(situation(120))
    assert created(plan) == ["la-1"]
    assert plan.announcements == ()
