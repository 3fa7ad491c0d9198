"""Waiting in a queue, and losing a node, cost a run neither an attempt nor time."""

import dataclasses
from datetime import timedelta

import pytest

from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import parse, stamp
from learnloop_operator.training.backends import CONTAINERS
from learnloop_operator.training.gang_pods import rank_of
from learnloop_operator.training.kueue import queue_sentence
from learnloop_operator.training.run_snapshot import TrainingSnapshot
from testing.training.training_builders import (
    NOW,
    after,
    condition,
    heartbeat,
    job,
    plan,
    rank,
    ranks,
    reason,
    run,
    situation,
    spec,
)

QUEUE = {"queue": {"name": "team-a"}}
SAYS = "couldn't assign flavors to pod set main: insufficient unused quota for cpu, 2 more needed"


def later(current: TrainingSnapshot, made: Plan, seconds: float, **changes) -> TrainingSnapshot:
    return after(current, made, now=current.now + timedelta(seconds=seconds), **changes)


def waiting(seconds: float = 0.0, **changes) -> TrainingSnapshot:
    """A run that began a minute ago and has waited for so long."""
    status = {"attempts": 1, "startedAt": stamp(NOW - timedelta(seconds=60))}
    if seconds:
        status |= {"queuedAt": stamp(NOW - timedelta(seconds=seconds))}
    chosen = {"spec": spec(**QUEUE), "job": job(queued=True), "queue_says": SAYS} | changes
    return situation(status, **chosen)


def test_a_gang_that_its_queue_holds_back_is_queued_in_the_words_of_its_workload() -> None:
    made = plan(waiting())
    assert (made.status["phase"], reason(made), condition(made, "Ready")["message"]) == ("Queued", "Queued", SAYS)
    assert (made.apply, made.delete, made.status["attempts"]) == ((), (), 1)
    assert made.status["queuedAt"] == stamp(NOW)
    assert made.requeue_after is not None
    assert [(item.type, item.reason) for item in made.events] == [("Normal", "Queued")]
    again = plan(later(waiting(), made, 10.0))
    assert (again.status["queuedAt"], again.events) == (stamp(NOW), ()), "said once"


def test_waiting_is_no_time_out_however_long_it_takes() -> None:
    limited = spec(**QUEUE, deadlineSeconds=100, stallSeconds=10)
    made = plan(waiting(86_400, spec=limited))
    assert made.status["phase"] == "Queued"


def test_every_clock_goes_on_from_the_admission() -> None:
    current = waiting(40, job=job(age=60))
    made = plan(current)
    assert (reason(made), made.status["attempts"]) == ("Admitted", 1)
    assert "queuedAt" not in made.status
    assert parse(made.status["startedAt"]) == NOW - timedelta(seconds=20), "20 s before it was held back"
    assert made.status["attemptStartedAt"] == stamp(NOW)
    assert "admitted after 40s" in condition(made, "Ready")["message"]


def test_a_gang_whose_pods_come_long_after_its_object_is_not_one_that_lost_ranks() -> None:
    limited = spec(**QUEUE, stallSeconds=10)
    current = waiting(7200, spec=limited, job=job(age=7200))
    admitted = plan(current)
    coming = later(current, admitted, 60, ranks=(rank(0, age=-5, running=False, started=None, waiting="Pulling"),))
    made = plan(coming)
    assert (made.delete, made.status["attempts"]) == ((), 1)
    assert "pod t-master-0 waits: Pulling" in condition(made, "Ready")["message"]


def test_what_the_ranks_said_before_they_were_held_back_is_no_sign_of_life_afterwards() -> None:
    old = run(beat=heartbeat(), age=300.0)
    current = waiting(200, job=job(age=600), run=old)
    admitted = plan(current)
    stuck = rank(0, age=-1, running=False, started=None, waiting="Unschedulable: no node", stuck=True)
    aged = run(beat=heartbeat(), age=500.0)
    made = plan(later(current, admitted, 200, ranks=(stuck,), run=aged))
    assert reason(made) == "PodsHeldUp", "a gang that waits for a node is not given up for its old heartbeat"


def test_ten_preemptions_by_the_queue_cost_no_attempt() -> None:
    current = waiting()
    for _ in range(10):
        made = plan(current)
        assert made.status["phase"] == "Queued"
        current = later(current, made, 3000, job=job(age=3000), queue_says="")
        made = plan(current)
        assert reason(made) == "Admitted"
        current = later(current, made, 30, job=job(age=3000), ranks=ranks(3030), run=run(beat=heartbeat()))
        made = plan(current)
        assert (made.status["phase"], made.status["attempts"], made.delete) == ("Training", 1, ())
        current = later(current, made, 1, job=job(age=3000, queued=True), ranks=(), queue_says=SAYS)


def test_the_number_of_workers_may_change_while_it_waits() -> None:
    made = plan(waiting(job=job(queued=True, workers=5)))
    assert reason(made) == "Resizing"
    assert [ref.name for ref in plan(after(waiting(job=job(queued=True, workers=5)), made)).delete] == ["t"]


def test_one_that_a_person_held_back_says_so() -> None:
    made = plan(waiting(spec=spec(), queue_says=""))
    assert "somebody has suspended PyTorchJob t" in condition(made, "Ready")["message"]


def test_a_queue_that_nobody_keeps_begins_nothing() -> None:
    made = plan(situation(spec=spec(**QUEUE), queue_missing="spec.queue names LocalQueue team-a, and Kueue is missing"))
    assert (made.apply, reason(made)) == ((), "QueueMissing")


PREEMPTED = "PreemptionByScheduler: preempting to accommodate a higher priority pod"


@pytest.mark.parametrize(
    "lost",
    [
        {"ranks": (rank(0), rank(1, deleting=True, disrupted=PREEMPTED), rank(2))},
        {"job": job(state="failed", disrupted="Pod ns/t has condition DisruptionTarget"), "ranks": ()},
    ],
    ids=["told by its pod", "told by the gang's end"],
)
def test_a_rank_that_lost_its_node_restarts_the_gang_free_of_charge(lost: dict) -> None:
    current = situation({"attempts": 2}, **{"job": job(attempt=1), "run": run(beat=heartbeat(attempt=1)), **lost})
    current = dataclasses.replace(current, job=dataclasses.replace(current.job or job(), attempt=1))
    first = plan(current)
    assert (first.delete, reason(first), first.status["preemptions"]) == ((), "Preempted", 1)
    forgotten = after(current, first, ranks=(), job=job(attempt=1, state="failed", message="its pods failed"))
    second = plan(forgotten)
    assert [ref.name for ref in second.delete] == ["t"], "on record: the pod that told it may be gone by now"
    assert second.status["preemptions"] == 1
    third = plan(after(forgotten, second, job=None, ranks=()))
    assert third.apply[0]["metadata"]["annotations"]["learnloop.dev/attempt"] == "1"
    assert (third.status["attempts"], third.status["preemptions"]) == (2, 1)


def test_a_run_that_succeeded_while_a_node_was_drained_has_succeeded() -> None:
    gone = (rank(0, running=False, exit_code=0, disrupted=PREEMPTED),)
    made = plan(situation({"attempts": 1}, job=job(state="succeeded"), ranks=gone))
    assert "preemptions" not in made.status


def pod(reason_: str = "", **target: str) -> dict:
    conditions = [{"type": "DisruptionTarget", "status": "True", **target}] if target else []
    return {
        "metadata": {"name": "t-0", "creationTimestamp": stamp(NOW)},
        "status": {"phase": "Failed", "conditions": conditions, **({"reason": reason_} if reason_ else {})},
    }


def test_a_disrupted_pod_is_told_from_one_that_used_up_its_node() -> None:
    target = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    drained = rank_of(pod(**target), CONTAINERS, NOW)
    evicted = rank_of(pod("Evicted", reason="TerminationByKubelet", message="ephemeral storage"), CONTAINERS, NOW)
    well = rank_of(pod(), CONTAINERS, NOW)
    assert drained.disrupted == "EvictionByEvictionAPI: Eviction API: evicting"
    assert (evicted.disrupted, well.disrupted) == ("", "")


def test_the_sentence_is_the_workloads_own() -> None:
    pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": SAYS}
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted to accommodate b"}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "Quota reserved"}
    check = {"name": "dws", "state": "Pending", "message": "Not ready; ETA 12:30"}
    assert queue_sentence({"metadata": {}, "status": {"conditions": [pending]}}) == SAYS
    both = queue_sentence({"metadata": {}, "status": {"conditions": [pending, evicted]}})
    assert both == f"Preempted: Preempted to accommodate b; {SAYS}"
    status = {"conditions": [reserved], "admissionChecks": [check, {"name": "other", "state": "Ready"}]}
    assert queue_sentence({"metadata": {}, "status": status}) == "admission check dws pending: Not ready; ETA 12:30"
    late = {"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout", "message": "Exceeded the timeout ns/t"}
    away = {"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout", "message": "Exceeded the timeout ns/t"}
    status = {"conditions": [late, away], "requeueState": {"count": 2, "requeueAt": "2026-03-01T12:04:00Z"}}
    sentence = "PodsReadyTimeout: Exceeded the timeout ns/t; queued again at 2026-03-01T12:04:00Z"
    assert queue_sentence({"metadata": {}, "status": status}) == sentence, "and when"
    assert queue_sentence(None) == queue_sentence({"metadata": {}}) == ""
