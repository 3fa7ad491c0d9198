"""The operator's next act for a TrainingJob."""

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_api.wire.training import TrainingRun
from learnloop_operator.training.attempts import ask_gates
from testing.training.training_builders import (
    NOW,
    after,
    condition,
    heartbeat,
    job,
    plan,
    proof,
    rank,
    ranks,
    reason,
    returns,
    run,
    situation,
    spec,
)


def test_a_new_job_starts_its_first_attempt_and_counts_it() -> None:
    made = plan(situation())
    (manifest,) = made.apply
    assert manifest["metadata"]["annotations"]["learnloop.dev/attempt"] == "0"
    assert (made.status["attempts"], made.status["phase"]) == (1, "Starting")


def test_data_of_a_deleted_job_of_the_same_name_is_removed_before_anything_starts() -> None:
    snapshot = situation(run=run(beat=heartbeat(), proof=proof()))
    made = plan(snapshot)
    assert [(call.method, call.path) for call in made.calls] == [("DELETE", "/api/v1/training/runs/t")]
    assert not made.apply
    assert made.status["phase"] != "Validated"


def test_nothing_starts_while_the_data_plane_is_silent() -> None:
    made = plan(situation(run_error="the data plane at http://x does not answer"))
    assert not made.apply
    assert reason(made) == "DataPlaneUnavailable"
    assert made.requeue_after is not None


def test_progress_reads_like_a_sentence() -> None:
    world = situation({"attempts": 1}, job=job(), ranks=ranks(), run=run(beat=heartbeat(recent_return=returns(150.0))))
    made = plan(world)
    summary = {key: made.status[key] for key in ("phase", "progress", "eta", "return", "worldSize")}
    assert summary == {
        "phase": "Training",
        "progress": "42%",
        "eta": "1m20s",
        "return": "150.0 [145.0, 155.0]",
        "worldSize": 3,
    }


def test_a_run_that_has_done_its_part_does_not_seem_to_train_while_its_proof_is_on_the_way() -> None:
    beat = heartbeat(phase="done", step=1000, message="the proof is stored")
    assert (
        plan(situation({"attempts": 1}, job=job(), ranks=ranks(), run=run(beat=beat))).status["phase"] == "Evaluating"
    )


def test_a_heartbeat_of_an_earlier_attempt_is_no_progress() -> None:
    snapshot = situation({"attempts": 2}, job=job(attempt=1), ranks=ranks(), run=run(beat=heartbeat(attempt=0)))
    assert "step" not in plan(snapshot).status


def test_the_end_of_an_attempt_is_recorded_before_its_pods_go() -> None:
    snapshot = situation(
        {"attempts": 1}, job=job(state="failed"), ranks=(rank(0), rank(1, exit_code=137, message="killed"))
    )
    first = plan(snapshot)
    assert not first.delete
    assert "t-worker-0 exited with 137: killed" in condition(first, "Reconciling")["message"]
    second = plan(after(snapshot, first))
    assert [ref.name for ref in second.delete] == ["t"]
    third = plan(after(after(snapshot, first), second, job=None, ranks=()))
    assert third.apply[0]["metadata"]["annotations"]["learnloop.dev/attempt"] == "1"
    assert third.status["attempts"] == 2


def test_the_next_attempt_waits_for_the_last_pod_of_the_previous_one() -> None:
    made = plan(situation({"attempts": 1}, ranks=(rank(deleting=True),)))
    assert not made.apply


def test_exit_code_2_fails_at_once_with_the_trainers_sentence() -> None:
    sentence = "spec.data.environment 'Cart' is unknown; use CartPole-v1"
    made = plan(situation({"attempts": 1}, job=job(), ranks=(rank(exit_code=2, running=False, message=sentence),)))
    assert (made.status["phase"], reason(made)) == ("Failed", "ConfigurationError")
    assert condition(made, "Stalled") == condition(made, "Stalled") | {"status": "True", "message": sentence}


def test_the_attempt_budget_is_exact() -> None:
    snapshot = situation({"attempts": 4}, job=job(attempt=3, state="failed"), ranks=(rank(exit_code=1),))
    made = plan(snapshot)
    assert reason(made) == "AttemptsExhausted"
    assert "attempt 4 of 4" in condition(made, "Ready")["message"]


def test_an_environment_that_raised_costs_one_attempt_and_its_sentence_is_in_the_status() -> None:
    sentence = "spec.data.environment: 'w:Plant' raised ZeroDivisionError: no valves in step, call 8"
    snapshot = situation(
        {"attempts": 2}, job=job(attempt=1, state="failed"), ranks=(rank(0), rank(1, exit_code=70, message=sentence))
    )
    first = plan(snapshot)
    assert sentence in condition(first, "Reconciling")["message"]
    second = plan(after(snapshot, first))
    assert plan(after(after(snapshot, first), second, job=None, ranks=())).status["attempts"] == 3


def test_another_number_of_workers_restarts_the_gang_from_its_checkpoint_without_costing_an_attempt() -> None:
    world = situation({"attempts": 2}, job=job(attempt=1, workers=5), ranks=ranks(), run=run(beat=heartbeat(attempt=1)))
    first = plan(world)
    assert (first.delete, reason(first)) == ((), "Resizing")
    assert "from 6 to 3 ranks" in condition(first, "Ready")["message"]
    second = plan(after(world, first))
    assert [ref.name for ref in second.delete] == ["t"]
    going = after(after(world, first), second, job=job(attempt=1, workers=5, deleting=True))
    third = plan(going)
    fourth = plan(after(going, third, job=None, ranks=()))
    assert fourth.apply[0]["metadata"]["annotations"]["learnloop.dev/attempt"] == "1"
    assert fourth.apply[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert fourth.status["attempts"] == 2
    last = plan(after(after(going, third, job=None, ranks=()), fourth, job=job(attempt=1, workers=2), ranks=ranks()))
    assert not last.delete
    assert last.status["phase"] == "Training"


def test_an_attempt_whose_start_was_never_recorded_still_counts() -> None:
    made = plan(situation({"attempts": 1}, job=job(attempt=1), ranks=ranks(), run=run(beat=heartbeat(attempt=1))))
    assert made.status["attempts"] == 2


def test_a_silent_gang_is_restarted_and_the_sentence_has_numbers() -> None:
    snapshot = situation({"attempts": 1}, job=job(age=600), ranks=ranks(600)[:2], run=run(age=130.0, beat=heartbeat()))
    made = plan(snapshot)
    assert made.status["phase"] == "Restarting"
    message = condition(made, "Ready")["message"]
    assert "130 s (limit 120 s)" in message
    assert "2 of 3 ranks run" in message


@pytest.mark.parametrize(("saved", "phase"), [(900, "Restarting"), (300, "Restarting"), (20, "Starting")])
def test_only_work_is_a_sign_of_life_of_a_gang_that_says_starting(saved: int, phase: str) -> None:
    checkpoint = {"step": 5, "sha256": "a" * 64, "size_bytes": 1, "at": NOW - timedelta(seconds=saved)}
    state = TrainingRun.model_validate(run(beat=heartbeat(phase="starting")).model_dump() | {"checkpoint": checkpoint})
    assert plan(situation({"attempts": 1}, job=job(age=600), ranks=ranks(600), run=state)).status["phase"] == phase


def test_a_run_that_lost_its_log_says_so_in_its_last_sentence() -> None:
    lost = {"read_at": NOW, "episodes": 0, "steps": 0, "model_revisions": [], "message": "no logged experience: 503"}
    made = ask_gates(situation({"attempts": 1}), proof(experience=lost))
    assert condition(made, "Ready")["message"].endswith("; no logged experience: 503")


def test_a_crash_loop_does_not_pass_for_life() -> None:
    fresh = dataclasses.replace(rank(1, age=3.0), running=True)
    made = plan(situation({"attempts": 1}, job=job(age=600), ranks=(rank(0, 600), fresh)))
    assert made.status["phase"] == "Restarting"


@pytest.mark.parametrize("sentence", ["Unschedulable: 0/3 nodes are available", "ImagePullBackOff: no such image"])
def test_pods_that_wait_for_the_cluster_are_not_stalled(sentence: str) -> None:
    waiting = rank(1, 600, running=False, started=None, waiting=sentence)
    made = plan(situation({"attempts": 1}, job=job(age=600), ranks=(rank(0, 600), waiting)))
    assert made.status["phase"] == "Starting"
    assert sentence in condition(made, "Ready")["message"]


def test_a_silent_data_plane_holds_a_running_job_and_never_restarts_it() -> None:
    made = plan(situation({"attempts": 1}, job=job(age=9999), ranks=ranks(9999), run_error="no answer"))
    assert not made.delete
    assert reason(made) == "DataPlaneUnavailable"


def test_suspending_removes_the_pods_and_resuming_costs_no_attempt() -> None:
    world = situation({"attempts": 2, "startedAt": "2026-03-01T11:00:00Z"}, spec=spec(suspend=True), job=job(attempt=1))
    first = plan(world)
    assert not first.delete, "the suspension is recorded first"
    second = plan(after(world, first))
    assert second.delete
    resumed = plan(after(world, second, spec=spec(), job=None))
    assert resumed.apply[0]["metadata"]["annotations"]["learnloop.dev/attempt"] == "1"
    assert resumed.status["attempts"] == 2
    assert resumed.status["startedAt"] == "2026-03-01T12:00:00Z"


def test_the_deadline_ends_a_job_that_still_runs() -> None:
    status = {"attempts": 1, "startedAt": "2026-03-01T11:00:00Z"}
    made = plan(situation(status, spec=spec(deadlineSeconds=60), job=job(), ranks=ranks(), run=run(beat=heartbeat())))
    assert reason(made) == "DeadlineExceeded"
    ended = after(situation(status, spec=spec(deadlineSeconds=60), job=job()), made)
    assert plan(ended).delete


def test_a_finished_job_is_left_alone() -> None:
    snapshot = situation({"attempts": 1}, job=job(state="succeeded"), run=run(beat=heartbeat(), proof=proof()))
    done = plan(snapshot)
    again = plan(after(snapshot, done))
    assert again.status == done.status
    assert (again.apply, again.delete, again.calls, again.events) == ((), (), (), ())


def test_the_ttl_removes_the_pods_job_and_keeps_the_outcome() -> None:
    chosen = spec(ttlSecondsAfterFinished=30)
    snapshot = situation({"attempts": 1}, spec=chosen, job=job(state="succeeded"), run=run(proof=proof()))
    done = plan(snapshot)
    assert plan(after(snapshot, done)).requeue_after == pytest.approx(30)
    late = plan(after(snapshot, done, now=NOW + timedelta(seconds=31)))
    assert late.delete
    assert late.status["phase"] == "Validated"


STATES = st.sampled_from(["active", "succeeded", "failed"])


@given(
    recorded=st.integers(0, 6),
    attempt=st.none() | st.integers(0, 5),
    state=STATES,
    age=st.floats(0, 1000),
    exit_code=st.none() | st.sampled_from([0, 1, 2, 137]),
    reported=st.booleans(),
    silent=st.booleans(),
    suspended=st.booleans(),
)
def test_no_world_gives_a_model_without_proof_or_an_attempt_over_budget(
    recorded: int,
    attempt: int | None,
    state: str,
    age: float,
    exit_code: int | None,
    reported: bool,
    silent: bool,
    suspended: bool,
) -> None:
    gang = () if attempt is None else (rank(exit_code=exit_code, running=exit_code is None),)
    snapshot = situation(
        {"attempts": recorded} if recorded else {},
        spec=spec(suspend=suspended),
        job=None if attempt is None else job(attempt=attempt, state=state),
        ranks=gang,
        run=None if silent else run(age=age, beat=heartbeat(attempt=attempt or 0), proof=proof() if reported else None),
        run_error="silent" if silent else None,
    )
    made = plan(snapshot)
    if made.status["phase"] == "Validated":
        assert reported
        assert not silent
        assert (state, attempt) == ("succeeded", 0), (
            "the proof is of another attempt, or of a gang that has not ended well"
        )
    for manifest_ in made.apply:
        assert int(manifest_["metadata"]["annotations"]["learnloop.dev/attempt"]) < snapshot.spec.max_attempts
        assert not gang
        assert not suspended
    assert plan(snapshot) == made, "the same situation gives the same plan"
    assert {"Ready", "Reconciling", "Stalled"} <= {item["type"] for item in made.status["conditions"]}
