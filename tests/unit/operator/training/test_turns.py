"""TrainingJobs take turns where a namespace has limits; each says where it stands and why."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.core.times import stamp
from learnloop_operator.kube.kinds import LEARNING_AGENT, TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.reconcile.training_job import TrainingJobController
from learnloop_operator.settings import Settings
from learnloop_operator.training.snapshot import Turn
from learnloop_operator.training.turns import Quota, Quotas, turn_of
from testing.training.training_builders import NOW, after, condition, plan, world

ONE = Quota(runs=1)


def body(name: str, spec: Mapping[str, Any] | None = None, age: int = 30, **status: Any) -> dict[str, Any]:
    created = stamp(NOW - timedelta(seconds=age))
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": created, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"totalSteps": 1000, **(spec or {})}, "status": status}


def begun(name: str, **status: Any) -> dict[str, Any]:
    return body(name, **{"turn": {"admittedAt": stamp(NOW)}, "startedAt": stamp(NOW), **status})


def told(key: str, *jobs: dict[str, Any], quota: Quota = ONE, agents: tuple[Any, ...] = ()) -> Turn:
    live = next(job for job in jobs if job["metadata"]["name"] == key)
    found = turn_of(live, jobs, agents, quota, NOW, frozenset())
    assert found is not None
    return found


def test_a_run_waits_behind_the_limit_and_begins_below_it() -> None:
    assert told("two", body("two")) == Turn(place=1, waiting=1)
    full = "namespace ns runs 1 of 1 trainings"
    assert told("three", begun("one"), body("two", age=60), body("three")) == Turn(place=2, waiting=2, why=full)
    assert told("two", begun("one", finishedAt=stamp(NOW)), body("two")).why == ""


def test_the_highest_priority_goes_first_then_the_oldest() -> None:
    queue = [body("old", age=90), body("new", age=10), body("urgent", {"priority": 90}, age=1)]
    assert [told(name, *queue).place for name in ("urgent", "old", "new")] == [1, 2, 3]


@pytest.mark.parametrize("spec", [{"suspend": True}, {"study": {}}, {"queue": {"name": "kueue"}}])
def test_studies_suspended_runs_and_runs_of_kueue_take_no_place(spec: dict[str, Any]) -> None:
    assert turn_of(body("one", spec), (), (), ONE, NOW, frozenset()) is None
    assert told("two", body("one", spec, startedAt=stamp(NOW)), body("two")).why == ""


def test_runs_of_today_are_counted_by_their_agents_and_those_that_wait_are_not() -> None:
    quota = Quota(runs_per_day=4)
    owned = body("la-9")
    owned["metadata"]["ownerReferences"] = [{"kind": "LearningAgent", "name": "la"}]
    day = {"date": NOW.date().isoformat(), "first": 6}
    status: dict[str, Any] = {"trainings": 9, "trainingDay": day}
    agent = {"metadata": {"namespace": "ns", "name": "la"}, "status": status}
    assert told("la-9", owned, quota=quota, agents=(agent,)).why == "", "three of four have begun"
    why = "namespace ns has begun 4 of 4 runs of today (UTC)"
    assert told("la-9", owned, begun("by-hand"), quota=quota, agents=(agent,)).why == why
    status["trainingDay"] = {**day, "date": "2020-01-01"}
    assert told("la-9", owned, begun("by-hand"), quota=quota, agents=(agent,)).why == ""


def test_a_run_that_resumes_counts_once_a_day() -> None:
    resumed = body("one", attempts=1)
    assert told("one", resumed, begun("two"), quota=Quota(runs_per_day=1)).why == ""


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100), st.integers(1, 999)), max_size=9), st.integers(1, 5))
def test_passes_at_once_never_admit_more_than_the_limit(runs: list[tuple[bool, int, int]], limit: int) -> None:
    jobs = [
        begun(f"r{n}") if running else body(f"r{n}", {"priority": priority}, age)
        for n, (running, priority, age) in enumerate(runs)
    ]
    waiting = [job["metadata"]["name"] for job, (running, *_) in zip(jobs, runs, strict=True) if not running]
    admitted = [name for name in waiting if not told(name, *jobs, quota=Quota(runs=limit)).why]
    already = len(jobs) - len(waiting)
    assert len(admitted) == min(len(waiting), max(0, limit - already)), "and no place stays empty"


def test_a_job_waits_says_where_it_stands_and_begins_when_its_turn_comes() -> None:
    waiting = Turn(place=2, waiting=5, why="namespace ns runs 1 of 1 trainings")
    made = plan(world(turn=waiting))
    assert (made.status["phase"], made.apply) == ("Queued", ())
    assert made.status["turn"] == {"place": 2, "waiting": 5}
    assert condition(made, "Ready")["message"] == "place 2 of 5 in the queue: namespace ns runs 1 of 1 trainings"
    assert [item.reason for item in made.events] == ["AwaitingTurn"]
    later = after(world(turn=waiting), made)
    assert plan(later).events == (), "it is news once"
    came = plan(after(world(turn=waiting), made, turn=Turn(place=1, waiting=5)))
    assert came.apply == (), "on record before anything is made"
    assert came.status["turn"]["admittedAt"]
    begins = plan(after(later, came, turn=waiting))
    assert len(begins.apply) == 1, "a turn that came is not taken away"
    assert begins.status["phase"] == "Starting"


def test_a_run_admitted_a_moment_ago_keeps_its_place_before_its_status_shows_it() -> None:
    cache = ObjectCache((TRAINING_JOB, LEARNING_AGENT))
    settings = Settings(training_quotas=Quotas(namespace=ONE))
    services = SimpleNamespace(cache=cache, settings=settings, kube=None)
    controller = TrainingJobController(services)  # type: ignore[arg-type]

    def turn(job: dict[str, Any], moment: datetime = NOW) -> str:
        found = controller._turn(job, moment)
        assert found is not None
        return found.why

    one, urgent = body("one"), body("urgent", {"priority": 90})
    assert "does not know all runs" in turn(one)
    for kind in (TRAINING_JOB, LEARNING_AGENT):
        cache.listed(kind, set(), "1")
    cache.put(TRAINING_JOB, one)
    assert turn(one) == ""
    cache.put(TRAINING_JOB, urgent)
    assert turn(urgent) == "namespace ns runs 1 of 1 trainings"
    assert turn(one) == "", "a pass that is repeated gets the same answer"
    assert turn(urgent, NOW + timedelta(seconds=61)) == "", "the first never began"
