"""No gang is made in part: what does not fit waits in phase Queued, and what fell apart makes room again."""

from dataclasses import replace
from typing import Any

from learnloop_operator.core.coordination.namespace_room import NamespaceRoom
from learnloop_operator.core.plan import Plan
from learnloop_operator.training.decide import decide
from learnloop_operator.training.snapshot import TrainingSnapshot
from testing.training.training_builders import ALL, heartbeat, job, rank, ranks, run, world


def room(used: int, hard: int = 4) -> NamespaceRoom:
    figures = {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}
    return NamespaceRoom(({"metadata": {"name": "tight"}, "spec": {}, "status": figures},))


def decided(seen: TrainingSnapshot) -> Plan:
    return decide(seen, ALL)


def ready(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in plan.status["conditions"] if item["type"] == "Ready")
    return found


def test_a_gang_that_does_not_fit_is_queued_and_nothing_is_made() -> None:
    plan = decided(world(room=room(used=2)))
    assert (plan.status["phase"], ready(plan)["reason"]) == ("Queued", "NoRoom")
    assert ready(plan)["message"] == "ResourceQuota tight: 2 of 4 pods are used, and 3 pods ask for 3"
    assert not plan.apply
    assert "attempts" not in plan.status or not plan.status["attempts"]
    assert [event.reason for event in plan.events] == ["NoRoom"]


def test_it_goes_on_by_itself_and_the_time_in_between_is_no_time_of_the_run() -> None:
    waited = decided(world(room=room(used=2)))
    plan = decided(world(waited.status, room=room(used=1)))
    assert [item["kind"] for item in plan.apply if item["kind"] == "PyTorchJob"] == ["PyTorchJob"]
    assert (plan.status["phase"], plan.status["attempts"]) == ("Starting", 1)
    assert plan.status.get("queuedAt") is None


def test_a_gang_that_lost_its_room_while_it_was_made_makes_room_free_of_charge() -> None:
    status = {"attempts": 1, "phase": "Starting", "startedAt": "2026-03-01T11:59:00Z"}
    part = world(status, job=job(), ranks=ranks()[:2], room=room(used=4))
    first = decided(part)
    assert ready(first)["reason"] == "NoRoom"
    assert "2 of 3 pods exist, which make room until all fit: ResourceQuota tight: 4 of 4" in ready(first)["message"]
    assert not first.delete, "on record before it happens"
    second = decided(replace(part, object={**part.object, "status": first.status}))
    assert [ref.kind for ref in second.delete] == ["PyTorchJob"]
    gone = decided(world(second.status, room=room(used=2)))
    assert (gone.status["phase"], gone.status["attempts"]) == ("Queued", 1)
    again = decided(world(gone.status, room=room(used=1)))
    assert again.status["attempts"] == 1, "the same attempt"


def test_a_gang_that_is_whole_or_works_or_is_young_is_left_alone() -> None:
    status = {"attempts": 1, "phase": "Training"}
    full = room(used=4)
    whole = world(status, job=job(), ranks=ranks(), room=full)
    young = world(status, job=job(age=2.0), ranks=(rank(),), room=full)
    works = world(status, job=job(), ranks=ranks()[:2], run=run(beat=heartbeat()), room=full)
    for seen in (whole, young, works):
        plan = decided(seen)
        assert not plan.delete
        assert ready(plan)["reason"] != "NoRoom"
