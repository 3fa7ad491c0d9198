"""TrainingJobs take turns where quotas say so; each says where it stands, why, and for how long."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from learnloop_operator.core.coordination.quotas import Quota, Quotas
from learnloop_operator.core.coordination.turns import Turn, gpus, turn_of, wanted
from learnloop_operator.core.times import stamp
from learnloop_operator.kube.kinds import LEARNING_AGENT, TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.kube.training_turns import PROMISE_SECONDS, UNKNOWN, TrainingTurns
from testing.training.training_builders import NOW, after, condition, job, plan, run, world

ONE = Quotas(namespace=Quota(runs=1))


def body(name: str, namespace: str = "ns", spec: Mapping[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": stamp(NOW - timedelta(seconds=30)),
        "resourceVersion": "1",
    }
    return {"metadata": metadata, "spec": {"totalSteps": 1000, "workers": 1, **(spec or {})}, "status": status}


def begun(name: str, namespace: str = "ns", **status: Any) -> dict[str, Any]:
    admitted = {"admittedAt": stamp(NOW - timedelta(seconds=500)), "waitedSeconds": 3}
    return body(name, namespace, turn=admitted, startedAt=stamp(NOW - timedelta(seconds=499)), **status)


def told(key: str, *jobs: dict[str, Any], quotas: Quotas = ONE, agents: tuple[Any, ...] = ()) -> Turn:
    return turn_of(("ns", key), jobs, agents, quotas, NOW, frozenset())


def test_a_job_is_seen_with_its_gpus_its_wait_and_its_priority() -> None:
    spec = {"priority": 70, "pod": {"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}}}}
    seen = wanted(body("one", spec=spec), NOW)
    assert seen is not None
    assert (seen.priority, seen.gpus, seen.waited, seen.running) == (70, 4, 30.0, False)
    for written, number in (("1k", 1000), ("2e1", 20), ("+3", 3), (4, 4)):
        many = {"pod": {"resources": {"limits": {"nvidia.com/gpu": written}}}}
        assert gpus(many) == number, "as Kubernetes reads it, or it would pass every quota"
    elsewhere: tuple[dict[str, Any], ...] = ({"suspend": True}, {"study": {}}, {"queue": {"name": "kueue"}})
    for away in elsewhere:
        assert wanted(body("one", spec=away), NOW) is None
    assert wanted(body("one", finishedAt=stamp(NOW)), NOW) is None


def test_the_next_in_the_queue_is_told_its_place_why_and_how_long() -> None:
    running = begun("one", step=400, totalSteps=1000, stepsPerSecond=10.0)
    turn = told("three", running, body("two", spec={"priority": 60}), body("three"))
    assert (turn.place, turn.waiting, turn.why) == (2, 2, "namespace ns runs 1 of 1 trainings")
    assert turn.seconds == 60.0 + 100.0, "what is left of the one, then all of the other"
    assert told("two", body("two")).admitted


def test_runs_of_today_are_counted_by_their_agents_and_those_that_wait_are_not() -> None:
    quotas = Quotas(namespace=Quota(runs_per_day=4))
    owned = body("la-9")
    owned["metadata"]["ownerReferences"] = [{"kind": "LearningAgent", "name": "la"}]
    day = {"date": NOW.date().isoformat(), "first": 6}
    agent = {"metadata": {"namespace": "ns", "name": "la"}, "status": {"trainings": 9, "trainingDay": day}}
    assert told("la-9", owned, quotas=quotas, agents=(agent,)).admitted, "three of four have begun"
    assert told("la-9", owned, begun("by-hand"), quotas=quotas, agents=(agent,)).why.startswith(
        "namespace ns has begun"
    )
    agent["status"]["trainingDay"] = {**day, "date": "2020-01-01"}  # type: ignore[index]
    assert told("la-9", owned, begun("by-hand"), quotas=quotas, agents=(agent,)).admitted


def test_who_waits_for_another_day_is_told_no_time_before_midnight() -> None:
    quotas = Quotas(namespace=Quota(runs=2, runs_per_day=1))
    running = begun("one", step=999, totalSteps=1000, stepsPerSecond=10.0)
    to_midnight = (NOW.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1) - NOW).total_seconds()
    queue = [running, body("two", spec={"priority": 60}), body("three")]
    assert told("two", *queue, quotas=quotas).seconds == to_midnight, "an end of another run lets nobody in"
    assert told("three", *queue, quotas=quotas).seconds == to_midnight + 86400.0, "and one begins in a day"


def test_an_end_in_another_namespace_is_no_place_in_a_full_one() -> None:
    elsewhere = begun("soon", "other", step=990, totalSteps=1000, stepsPerSecond=10.0)
    own = begun("long", step=0, totalSteps=36000, stepsPerSecond=10.0)
    assert told("waits", elsewhere, own, body("waits")).seconds == 3600.0
    cluster = Quotas(cluster=Quota(runs=2))
    assert told("waits", elsewhere, own, body("waits"), quotas=cluster).seconds == 1.0, "there any place is as good"


def test_who_asks_for_more_than_there_will_ever_be_is_told_no_time_and_takes_none_from_others() -> None:
    quotas = Quotas(namespace=Quota(runs=1, gpus=2))
    running = begun("one", step=400, totalSteps=1000, stepsPerSecond=10.0)
    many = body("many", spec={"priority": 90, "pod": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}})
    turn = told("many", running, many, body("few"), quotas=quotas)
    assert (turn.place, turn.seconds) == (1, None)
    assert told("few", running, many, body("few"), quotas=quotas).seconds == 60.0


def test_a_run_that_has_done_more_steps_than_it_said_is_about_to_end() -> None:
    running = begun("one", step=1024, totalSteps=1000, stepsPerSecond=10.0)
    assert told("two", running, body("two")).seconds == 0.0


def test_a_job_waits_says_where_it_stands_and_begins_when_its_turn_comes() -> None:
    waiting = Turn(place=2, waiting=5, why="namespace ns runs 1 of 1 trainings", seconds=250.0)
    made = plan(world(turn=waiting))
    assert (made.status["phase"], made.apply) == ("Queued", ())
    assert made.status["turn"] == {"place": 2, "waiting": 5, "eta": "5m00s"}
    said = "place 2 of 5 in the queue, about 5m00s: namespace ns runs 1 of 1 trainings"
    assert condition(made, "Ready")["message"] == said
    assert [item.reason for item in made.events] == ["AwaitingTurn"]
    later = after(world(turn=waiting), made)
    assert plan(later).events == (), "it is news once"
    came = plan(after(world(turn=waiting), made, turn=Turn(admitted=True)))
    assert came.apply == (), "on record before anything is made"
    assert came.status["turn"]["admittedAt"]
    begins = plan(after(later, came, turn=Turn(place=1, waiting=1, why="whatever")))
    assert len(begins.apply) == 1, "a turn that came is not taken away"
    assert begins.status["phase"] == "Starting"


def test_a_run_makes_way_free_of_charge_and_waits_again() -> None:
    state = {"attempts": 1, "startedAt": stamp(NOW), "turn": {"admittedAt": stamp(NOW), "waitedSeconds": 0}}
    seen = world(state, job=job(), run=run(), turn=Turn(way_for=("ns", "urgent")))
    noted = plan(seen)
    assert noted.delete == (), "on record first"
    assert "turn" not in noted.status
    assert noted.status["preemptions"] == 1
    assert "makes way for urgent" in condition(noted, "Ready")["message"]
    gone = plan(after(seen, noted, turn=Turn(place=1, waiting=1, why="w")))
    assert len(gone.delete) == 1
    waits = plan(after(seen, gone, job=None, turn=Turn(place=1, waiting=1, why="namespace ns runs 1 of 1 trainings")))
    assert waits.status["phase"] == "Queued"
    again = plan(after(seen, waits, job=None, turn=Turn(admitted=True)))
    resumed = plan(after(seen, again, job=None, turn=Turn()))
    assert resumed.status["attempts"] == 1, "it costs no attempt"


def test_two_passes_at_once_never_give_the_same_place_twice() -> None:
    cache, clock = ObjectCache((TRAINING_JOB, LEARNING_AGENT)), [0.0]
    turns = TrainingTurns(cache, ONE, lambda: clock[0])
    one, two = body("one"), body("two")
    assert turns.turn(one, NOW) == UNKNOWN
    for item in (one, two):
        cache.put(TRAINING_JOB, item)
    for kind in (TRAINING_JOB, LEARNING_AGENT):
        cache.listed(kind, {("ns", "one"), ("ns", "two")}, "1")
    found = [turns.turn(item, NOW) for item in (one, two)]
    assert sorted(bool(item and item.admitted) for item in found) == [False, True]
    first = one if found[0] and found[0].admitted else two
    again = turns.turn(first, NOW)
    assert again is not None
    assert again.admitted, "a pass that was repeated gets the same answer"
    cache.remove(TRAINING_JOB, {"metadata": {**first["metadata"], "resourceVersion": "2"}})
    other = two if first is one else one
    clock[0] = PROMISE_SECONDS + 1
    found_again = turns.turn(other, NOW)
    assert found_again is not None
    assert found_again.admitted


def test_who_deletes_what_has_begun_gets_no_other_run_of_the_day_for_it() -> None:
    cache = ObjectCache((TRAINING_JOB, LEARNING_AGENT))
    turns = TrainingTurns(cache, Quotas(namespace=Quota(runs_per_day=1)))
    ended, wanted_next = begun("by-hand", finishedAt=stamp(NOW)), body("another")
    ended["metadata"]["uid"], wanted_next["metadata"]["uid"] = "u-1", "u-2"
    cache.put(TRAINING_JOB, ended)
    for kind in (TRAINING_JOB, LEARNING_AGENT):
        cache.listed(kind, {("ns", "by-hand")}, "1")
    why = "namespace ns has begun 1 of 1 runs of today (UTC)"

    def turn(moment: datetime = NOW) -> Turn:
        found = turns.turn(wanted_next, moment)
        assert found is not None
        return found

    cache.put(TRAINING_JOB, wanted_next)
    assert turn().why == why
    cache.remove(TRAINING_JOB, {"metadata": {**ended["metadata"], "resourceVersion": "2"}})
    assert turn().why == why
    assert turn(NOW + timedelta(days=1)).admitted, "another day"


def test_without_quotas_and_in_a_queue_of_kueue_nobody_asks() -> None:
    cache = ObjectCache((TRAINING_JOB, LEARNING_AGENT))
    assert TrainingTurns(cache, Quotas()).turn(body("one"), NOW) is None
    assert TrainingTurns(cache, ONE).turn(body("one", spec={"queue": {"name": "kueue"}}), NOW) is None
