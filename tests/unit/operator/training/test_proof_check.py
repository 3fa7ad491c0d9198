"""The proof of a TrainingJob before its model counts: proof, parity, gates."""

import dataclasses
from datetime import timedelta

import pytest

from learnloop_api.wire.training import OffPolicy, ValidationPoint, ValidationReport
from learnloop_operator.core.plan import Plan
from learnloop_operator.training.decide_run import PROOF_GRACE
from learnloop_operator.training.run_snapshot import BackendJob
from testing.training.training_builders import (
    NOW,
    condition,
    heartbeat,
    job,
    plan,
    proof,
    ranks,
    reason,
    run,
    situation,
    spec,
)


def ended(attempt: int = 0) -> BackendJob:
    """A gang whose pods have all done their work."""
    return job(attempt, state="succeeded", finished=NOW)


@pytest.mark.parametrize("state", ["active", "failed"])
def test_a_proof_proves_nothing_while_the_gang_runs_or_after_it_failed(state: str) -> None:
    record = run(beat=heartbeat(step=10), proof=proof())
    made = plan(situation({"attempts": 1}, job=job(state=state), ranks=ranks(), run=record))
    assert condition(made, "Trained")["status"] == "Unknown"
    assert condition(made, "Validated")["status"] == "Unknown"


def test_a_proof_without_a_gang_proves_nothing() -> None:
    made = plan(situation({"attempts": 1}, run=run(beat=heartbeat(), proof=proof())))
    assert condition(made, "Trained")["status"] == "Unknown"


def test_a_proof_of_another_attempt_proves_nothing() -> None:
    late = dataclasses.replace(ended(1), finished=NOW - timedelta(seconds=PROOF_GRACE + 1))
    made = plan(situation({"attempts": 2}, job=late, run=run(beat=heartbeat(1), proof=proof())))
    assert made.status["phase"] == "Restarting"
    assert "the proof is of attempt 1, the gang was attempt 2" in condition(made, "Ready")["message"]


@pytest.mark.parametrize("uri", ["https://elsewhere.example/" + "a" * 64, f"learnloop://other/{'a' * 64}", "file:///a"])
def test_a_proof_of_an_artifact_that_is_not_the_data_planes_own_is_rejected(uri: str) -> None:
    made = plan(situation({"attempts": 1}, job=ended(), run=run(beat=heartbeat(), proof=proof(artifact_uri=uri))))
    assert (made.status["phase"], reason(made)) == ("Failed", "ProofRejected")
    assert "push it to the data plane" in condition(made, "Ready")["message"]


def test_succeeded_pods_without_a_proof_are_not_trained() -> None:
    ended = job(state="succeeded", finished=NOW - timedelta(seconds=PROOF_GRACE - 1))
    patient = plan(situation({"attempts": 1}, job=ended, run=run(beat=heartbeat())))
    assert reason(patient) == "AwaitingProof"
    late = dataclasses.replace(ended, finished=NOW - timedelta(seconds=PROOF_GRACE + 1))
    made = plan(situation({"attempts": 1}, job=late, run=run(beat=heartbeat())))
    assert made.status["phase"] == "Restarting"
    assert condition(made, "Trained")["status"] == "Unknown"


def test_a_verified_proof_validates_the_model() -> None:
    made = plan(situation({"attempts": 1}, job=ended(), run=run(beat=heartbeat(step=1000), proof=proof())))
    assert made.status["phase"] == "Validated"
    assert {item["type"]: item["status"] for item in made.status["conditions"]} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "Trained": "True",
        "Validated": "True",
        "Suspended": "False",
    }
    assert made.status["artifact"]["sha256"] == "a" * 64
    assert made.status["return"] == "480.0 [475.0, 485.0]"


@pytest.mark.parametrize("change", [{"step": 999}, {"job": "other"}, {"algorithm": "dqn"}])
def test_a_proof_of_something_else_or_half_done_is_no_proof(change: dict[str, object]) -> None:
    made = plan(
        situation({"attempts": 1}, job=ended(), ranks=ranks(), run=run(beat=heartbeat(), proof=proof(**change)))
    )
    assert condition(made, "Trained")["status"] == "Unknown"


def test_an_export_that_differs_from_the_network_is_rejected_for_good() -> None:
    parity = {"observations": 9, "recorded": 9, "max_abs_difference": 0.5, "action_agreement": 0.8, "passed": False}
    made = plan(situation({"attempts": 1}, job=ended(), run=run(beat=heartbeat(), proof=proof(parity=parity))))
    assert (made.status["phase"], reason(made)) == ("Failed", "ProofRejected")


def test_further_formats_are_part_of_the_proof_and_of_the_status() -> None:
    chosen, fine = spec(export={"formats": ["torchscript"]}), proof().parity
    export = {
        "format": "torchscript",
        "uri": "learnloop://ns/" + "c" * 64,
        "sha256": "c" * 64,
        "size_bytes": 9,
        "parity": fine,
    }

    def made(*exports: dict[str, object]) -> Plan:
        record = run(beat=heartbeat(step=1000), proof=proof(exports=exports))
        return plan(situation({"attempts": 1}, spec=chosen, job=ended(), ranks=ranks(), run=record))

    assert made(export).status["exports"] == [{name: export[name] for name in ("format", "uri", "sha256")}]
    assert condition(made(), "Trained")["status"] == "Unknown", "the format asked for is missing"
    wrong = fine.model_copy(update={"passed": False})
    assert reason(made(export | {"parity": wrong})) == "ProofRejected"


def test_a_model_that_fails_a_gate_is_trained_but_never_validated() -> None:
    chosen = spec(gates={"minReturn": 490, "minImprovement": 100})
    made = plan(situation({"attempts": 1}, spec=chosen, job=ended(), run=run(beat=heartbeat(), proof=proof())))
    assert (made.status["phase"], reason(made)) == ("Failed", "GatesFailed")
    assert condition(made, "Trained")["status"] == "True"
    assert condition(made, "Validated")["status"] == "False"
    assert "480.0, must be at least 490" in condition(made, "Ready")["message"]


SPACES = "uniform://discrete/2?observations=4"
LOG = OffPolicy(discount=0.99, episodes=200, verdict=True)


@pytest.mark.parametrize(
    ("logged", "claims", "words"),
    [
        (True, {"environment": SPACES}, "is by played episodes, the spec asks for a log"),
        (False, {"off_policy": LOG}, "is by a log, the spec asks for played episodes"),
    ],
)
def test_a_proof_of_another_kind_than_the_spec_asks_for_proves_nothing(logged, claims, words):
    wanted = spec(algorithm="cql", data={"spaces": SPACES}) if logged else spec()
    late = dataclasses.replace(ended(), finished=NOW - timedelta(seconds=PROOF_GRACE + 1))
    handed_in = proof(algorithm=wanted.algorithm, **claims)
    made = plan(situation({"attempts": 1}, spec=wanted, job=late, run=run(beat=heartbeat(), proof=handed_in)))
    assert made.status["phase"] == "Restarting"
    assert words in condition(made, "Ready")["message"]


@pytest.mark.parametrize("verdict", [True, False])
def test_a_run_without_an_environment_serves_only_where_its_log_gives_a_verdict(verdict: bool) -> None:
    wanted = spec(algorithm="cql", data={"spaces": SPACES})
    judged = LOG.model_copy(update={"verdict": verdict, "message": "" if verdict else "log more episodes"})
    manifest = proof(algorithm="cql", environment=SPACES, off_policy=judged)
    made = plan(situation({"attempts": 1}, spec=wanted, job=ended(), run=run(beat=heartbeat(), proof=manifest)))
    assert made.status["phase"] == ("Validated" if verdict else "Failed")
    assert made.status["return"] == ("480.0 [475.0, 485.0]" if verdict else "no verdict")
    assert ("evaluation" in made.status) == verdict


@pytest.mark.parametrize("patience", [None, 3])
def test_a_run_that_patience_ended_is_whole_where_the_spec_has_patience(patience: int | None) -> None:
    wanted = spec(evaluation={"whileTraining": {"patience": patience}})
    validated = ValidationReport(
        episodes=20, points=[ValidationPoint(step=400, mean=3.0)], exported="last", ended_early=True
    )
    handed_in = proof(step=400, while_training=validated)
    late = dataclasses.replace(ended(), finished=NOW - timedelta(seconds=PROOF_GRACE + 1))
    made = plan(situation({"attempts": 1}, spec=wanted, job=late, run=run(beat=heartbeat(), proof=handed_in)))
    assert made.status["phase"] == ("Restarting" if patience is None else "Validated")
