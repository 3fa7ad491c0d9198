"""The data plane learns of a run what no heartbeat says: that it is queued, and how it was judged."""

from datetime import timedelta

from learnloop_api.wire.training_request import TrainingStatus
from learnloop_operator.core.times import stamp
from testing.training.training_builders import NOW, heartbeat, job, plan, proof, ranks, run, situation, spec


def statuses(made: object) -> list[TrainingStatus]:
    return [TrainingStatus.model_validate(item.call.body) for item in made.announcements]


def test_a_new_job_is_told_as_queued_before_its_first_heartbeat() -> None:
    (event,) = statuses(plan(situation()))
    assert (event.status, event.phase, event.step, event.progress) == ("queued", "queued", 0, 0.0)
    assert event.job_uid
    waiting = plan(situation(spec=spec(backend="pytorchjob"), installed=frozenset()))
    assert "install the Kubeflow training operator" in statuses(waiting)[0].message
    assert plan(situation()).announcements[0].identity == waiting.announcements[0].identity, "the same news"


def test_a_run_that_waits_again_is_announced_as_queued_once_for_each_wait() -> None:
    state = {"attempts": 1, "step": 420, "startedAt": stamp(NOW - timedelta(minutes=9)), "preemptions": 1}
    held = job(queued=True)
    first = plan(situation(state, job=held, run=run(age=30.0, beat=heartbeat())))
    (event,) = statuses(first)
    assert (event.status, event.step) == ("queued", 420)
    later = situation({**state, **first.status}, job=held, run=run(age=60.0, beat=heartbeat()))
    assert plan(later).announcements[0].identity == first.announcements[0].identity, "the same wait"
    beat = heartbeat(at=NOW + timedelta(minutes=5))
    again = plan(situation({**state, "preemptions": 2}, job=held, run=run(age=30.0, beat=beat)))
    assert again.announcements[0].identity != first.announcements[0].identity, "it ran in between"


def test_a_run_at_work_is_told_by_its_heartbeats_alone() -> None:
    state = {"attempts": 1, "startedAt": stamp(NOW)}
    assert statuses(plan(situation(state, job=job(), ranks=ranks(), run=run(beat=heartbeat())))) == []


def test_a_verdict_is_told_with_its_evaluation_gates_and_artifact() -> None:
    state = {"attempts": 1, "startedAt": stamp(NOW)}
    made = plan(situation(state, job=job(state="succeeded"), run=run(beat=heartbeat(), proof=proof())))
    (event,) = statuses(made)
    assert event.status == ("completed" if made.status["phase"] == "Validated" else "failed")
    assert event.artifact.sha256 == made.status["artifact"]["sha256"]
    assert event.evaluation.mean == made.status["evaluation"]["mean"]
    assert [gate.name for gate in event.gates] == [gate["name"] for gate in made.status["gates"]]


def test_a_failure_is_told_with_its_reason_until_it_is_an_hour_old() -> None:
    state = {"attempts": 1, "startedAt": stamp(NOW - timedelta(hours=2))}
    made = plan(situation(state, spec=spec(deadlineSeconds=60), job=job()))
    (event,) = statuses(made)
    assert (event.status, event.phase, event.error and event.error.reason) == ("failed", "failed", "DeadlineExceeded")
    again = plan(situation({**made.status, "finishedAt": stamp(NOW - timedelta(minutes=59))}))
    assert statuses(again)[0].error == event.error
    assert statuses(plan(situation({**made.status, "finishedAt": stamp(NOW - timedelta(minutes=61))}))) == []
