"""Runs that give up their place, step by step, with the status that each pass writes: nothing is left hanging."""

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from learnloop_operator.core.coordination.quotas import Quota, Quotas
from learnloop_operator.core.coordination.turns import turn_of
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import stamp
from learnloop_operator.training.snapshot import TrainingSnapshot
from testing.training.training_builders import NOW, condition, job, plan, resource, run, spec, world

ONE = Quotas(namespace=Quota(runs=1))
BEGUN = NOW - timedelta(seconds=7200)


class Namespace:
    """TrainingJobs of one namespace, each passed over with what the scheduler says at that moment."""

    def __init__(self, quotas: Quotas, **worlds: TrainingSnapshot) -> None:
        self.quotas, self.worlds = quotas, worlds

    def body(self, name: str) -> dict[str, Any]:
        seen = self.worlds[name]
        metadata = {**seen.object["metadata"], "creationTimestamp": stamp(BEGUN)}
        return {**seen.object, "metadata": metadata, "spec": seen.spec.to_kube()}

    def look(self, name: str, **changes: Any) -> Plan:
        """One pass; the status is written."""
        seen = self.worlds[name]
        turn = turn_of(("ns", name), map(self.body, self.worlds), (), self.quotas, seen.now, frozenset())
        seen = dataclasses.replace(seen, turn=turn, **changes)
        made = plan(seen)
        self.worlds[name] = dataclasses.replace(seen, object={**seen.object, "status": made.status})
        return made

    def later(self, seconds: float) -> None:
        for name, seen in self.worlds.items():
            self.worlds[name] = dataclasses.replace(seen, now=seen.now + timedelta(seconds=seconds))


def new(name: str, status: Mapping[str, Any] | None = None, **changes: Any) -> TrainingSnapshot:
    found = resource(dict(status or {}), name=name)
    wishes = {key: changes.pop(key) for key in ("priority", "suspend") if key in changes}
    return world(None, object=found, spec=spec(**wishes), **changes)


def running(name: str, **changes: Any) -> TrainingSnapshot:
    turn = {"admittedAt": stamp(BEGUN), "waitedSeconds": 0}
    status = {"attempts": 1, "startedAt": stamp(BEGUN), "turn": turn, "phase": "Training"}
    return new(name, status, job=job(), run=run(), **changes)


def test_a_run_that_made_way_waits_behind_the_one_it_made_way_for_and_goes_on_after_it() -> None:
    both = Namespace(ONE, mild=running("mild", priority=10), urgent=new("urgent", priority=90))
    assert both.look("urgent").status["phase"] == "Queued"
    both.look("mild")
    assert both.look("mild").delete, "its gang ends"
    assert both.look("urgent").status["phase"] == "Queued", "while the gang is there, the place is taken"
    both.look("mild", job=None, run=None)
    both.later(5)
    assert both.look("urgent").status["turn"]["admittedAt"]
    waits = both.look("mild")
    assert waits.status["turn"] == {"place": 1, "waiting": 1}
    assert condition(waits, "Ready")["message"] == "place 1 of 1 in the queue: namespace ns runs 1 of 1 trainings"
    del both.worlds["urgent"]
    both.later(600)
    assert both.look("mild").status["turn"]["admittedAt"]
    again = both.look("mild")
    assert (len(again.apply), again.status["attempts"]) == (1, 1), "it costs no attempt"


def test_a_run_that_began_before_there_were_quotas_waits_for_its_turn_when_its_gang_has_failed() -> None:
    old = new("old", {"attempts": 1, "startedAt": stamp(BEGUN), "phase": "Training"})
    both = Namespace(ONE, old=old, other=running("other"))
    both.look("old")
    assert both.look("old").status["turn"] == {"place": 1, "waiting": 1}


def test_a_run_that_was_suspended_does_not_come_back_into_a_place_that_another_has() -> None:
    both = Namespace(ONE, held=running("held", suspend=True), next=new("next"))
    both.look("held")
    assert both.look("held").delete
    both.look("held", job=None, run=None)
    assert both.look("next").status["turn"]["admittedAt"]
    waits = both.look("held", spec=spec())
    assert (waits.status["phase"], waits.apply) == ("Queued", ()), "one run at a time, whoever was first"


def test_a_day_counts_a_run_once_however_often_it_waits() -> None:
    quotas = Quotas(namespace=Quota(runs_per_day=2))
    owner = [{"kind": "LearningAgent", "name": "la"}]
    bodies = []
    for name, status in (("la-1", {"attempts": 1, "startedAt": stamp(NOW)}), ("la-2", {})):
        waiting = {"queuedAt": stamp(NOW), "turn": {"place": 1, "waiting": 1}}
        metadata = {"name": name, "namespace": "ns", "creationTimestamp": stamp(NOW), "ownerReferences": owner}
        bodies.append({"metadata": metadata, "spec": {}, "status": {**status, **waiting}})
    day = {"date": NOW.date().isoformat(), "first": 1}
    agent = {"metadata": {"namespace": "ns", "name": "la"}, "status": {"trainings": 3, "trainingDay": day}}
    told = {name: turn_of(("ns", name), bodies, (agent,), quotas, NOW, frozenset()) for name in ("la-1", "la-2")}
    assert told["la-1"].admitted, "it made way, and its day has counted it"
    assert told["la-2"].why == "namespace ns has begun 2 of 2 runs of today (UTC)", "la-1 and la-3"
