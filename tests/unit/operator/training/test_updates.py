"""A run whose rank stays: what the operator does about its updates."""

import dataclasses
from typing import Any

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentStatus
from learnloop_api.wire.training import TrainingRun, UpdateOrder
from learnloop_operator.training.run_snapshot import TrainingSnapshot
from testing.training.training_builders import NOW, after, condition, job, plan, proof, reason, situation, spec

OTHER = "c" * 64
SERVING = {"status": {"model": {"uri": f"learnloop://ns/{'a' * 64}", "sha256": "a" * 64}}}


def wanted(update: int) -> Any:
    return spec(workers=0, continuous={"steps": 256, "maxKl": 0.1, "update": update})


def ran(update: int = 0, **changes: Any) -> TrainingRun:
    """The data plane's answer after this update."""
    order = UpdateOrder(number=update, goes_on=True) if update else None
    steps = {"step": 256, "update": update} if update else {}
    return TrainingRun(job="t", proof=proof(**steps | changes), update=order)


def improved(update: int, digest: str = OTHER, **changes: Any) -> TrainingRun:
    return ran(update, artifact_sha256=digest, artifact_uri=f"learnloop://ns/{digest}", **changes)


def proven() -> TrainingSnapshot:
    """The run itself is judged, its rank lives on, and its artifact serves."""
    begun = situation({"attempts": 1}, spec=wanted(0), job=job(workers=0), run=ran(), agent=SERVING, agent_name="a")
    return after(begun, plan(begun))


def test_a_proof_of_a_live_rank_is_judged_and_the_rank_stays() -> None:
    snapshot = proven()
    assert (snapshot.status["phase"], snapshot.status["update"]) == ("Validated", 0)
    assert "finishedAt" not in snapshot.status
    made = plan(snapshot)
    assert (made.delete, made.calls, made.apply) == ((), (), ()), "it waits, however long it gives no sign of life"
    assert plan(after(snapshot, made)).status == made.status


def test_an_update_is_ordered_once_and_takes_the_artifacts_place_when_its_gates_pass() -> None:
    ordering = dataclasses.replace(proven(), spec=wanted(1))
    made = plan(ordering)
    (call,) = made.calls
    assert (call.method, call.path) == ("PUT", "/api/v1/training/runs/t/update")
    assert (call.body["number"], call.body["goes_on"], call.body["baseline_sha256"]) == (1, True, "a" * 64)
    assert condition(made, "Validated")["status"] == "True", "what was proven serves meanwhile"
    assert plan(ordering).calls == made.calls, "an operator that died in between orders the same"
    order = UpdateOrder.model_validate(call.body)
    at_work = after(ordering, made, run=TrainingRun(job="t", proof=ran().proof, update=order))
    assert not plan(at_work).calls
    judged = plan(dataclasses.replace(at_work, run=improved(1, kl=0.05)))
    assert judged.status["artifact"]["sha256"] == OTHER
    assert (judged.status["update"], judged.status["phase"]) == (1, "Validated")


@pytest.mark.parametrize(
    ("changes", "why"), [({"kl": 0.2}, "Strayed"), ({"evaluation": proof().baseline}, "UpdateRefused")]
)
def test_what_a_refused_update_made_never_takes_the_place_of_what_was_proven(changes: Any, why: str) -> None:
    ordering = dataclasses.replace(proven(), spec=wanted(1), run=improved(1, **changes))
    made = plan(ordering)
    assert (reason(made, "Trained"), made.status["phase"]) == (why, "Waiting")
    assert made.status["artifact"]["sha256"] == "a" * 64
    assert condition(made, "Validated")["status"] == "True"
    following = plan(dataclasses.replace(after(ordering, made), spec=wanted(2)))
    assert following.calls[0].body["goes_on"] == (why == "UpdateRefused"), "a stray begins from what serves"


def test_an_update_refused_at_the_bound_is_not_gone_on_from_and_its_artifact_never_passes() -> None:
    worse = {"evaluation": proof().baseline, "kl": 0.05, "ended_by_kl": True, "step": 128}
    ordering = dataclasses.replace(proven(), spec=wanted(1), run=improved(1, **worse))
    made = plan(ordering)
    assert reason(made, "Trained") == "UpdateRefused", "its steps are enough: the bound has ended it"
    ordered = dataclasses.replace(after(ordering, made), spec=wanted(2))
    assert plan(ordered).calls[0].body["goes_on"] is False
    for digest, baseline in ((OTHER, "a" * 64), ("d" * 64, "d" * 64)):
        again = improved(2, digest, kl=0.05, baseline_sha256=baseline)
        judged = plan(dataclasses.replace(ordered, run=again))
        assert (reason(judged, "Trained"), judged.status["artifact"]["sha256"]) == ("UpdateRefused", "a" * 64)
    assert plan(dataclasses.replace(ordered, run=improved(2, "d" * 64, kl=0.05))).status["refused"] == [OTHER]


@pytest.mark.parametrize(
    ("baseline", "kind", "verdict"),
    [
        ("a" * 64, "sampled", "Strayed"),
        ("e" * 64, "sampled", "Strayed"),
        (None, "sampled", "Validated"),
        ("e" * 64, "greedy", "Validated"),
    ],
)
def test_an_update_that_draws_does_not_pass_without_its_divergence_from_what_serves(baseline, kind, verdict) -> None:
    drawn = improved(1, behaviour={"kind": kind}, baseline_sha256=baseline)
    made = plan(dataclasses.replace(proven(), spec=wanted(1), run=drawn))
    assert reason(made, "Trained") == verdict
    why = "maxKl: not measured: the policy that serves does not draw its actions, as the update does; create"
    assert condition(made, "Trained")["message"].removeprefix("update 1: ").startswith(why) == (verdict == "Strayed")


def test_after_a_roll_back_the_next_update_begins_from_what_serves() -> None:
    stable = {"revision": "12345678", "uri": f"learnloop://ns/{'d' * 64}", "sha256": "d" * 64}
    artifact = {"uri": f"learnloop://ns/{'a' * 64}", "sha256": "a" * 64}
    block = {
        **artifact,
        "revision": "1234abcd",
        "reason": "RolledBack",
        "message": "worse",
        "at": "2026-03-01T11:00:00Z",
    }
    deployment = ModelDeploymentStatus.model_validate({"stable": stable, "blockedRevisions": [block]})
    body = plan(dataclasses.replace(proven(), spec=wanted(1), deployment=deployment)).calls[0].body
    assert (body["goes_on"], body["baseline_sha256"]) == (False, "d" * 64)


@pytest.mark.parametrize("changes", [{}, {"update": 1, "attempts": 2}, {"update": 1, "step": 255}])
def test_another_proof_than_that_of_the_update_counts_for_nothing(changes: Any) -> None:
    handed = proof(artifact_sha256=OTHER, artifact_uri=f"learnloop://ns/{OTHER}", **{"step": 256} | changes)
    made = plan(dataclasses.replace(proven(), spec=wanted(1), run=improved(1).model_copy(update={"proof": handed})))
    assert (made.status["update"], made.status["artifact"]["sha256"]) == (0, "a" * 64)


def test_a_rank_that_died_is_made_again_and_what_was_proven_stays_so() -> None:
    died = dataclasses.replace(proven(), job=job(workers=0, state="failed", finished=NOW))
    first = plan(died)
    assert condition(first, "Validated")["status"] == "True"
    assert plan(after(died, first)).delete
    again = plan(after(after(died, first), plan(after(died, first)), job=None))
    assert again.apply[-1]["metadata"]["annotations"]["learnloop.dev/attempt"] == "1"


def test_the_last_update_s_verdict_outlives_the_last_attempt() -> None:
    ordering = dataclasses.replace(proven(), spec=wanted(1), run=improved(1, kl=0.2))
    strayed = after(ordering, plan(ordering))
    attempt = strayed.spec.max_attempts - 1
    dead = job(workers=0, attempt=attempt, state="failed", finished=NOW)
    made = plan(dataclasses.replace(strayed, job=dead))
    assert (made.status["phase"], reason(made, "Trained")) == ("Failed", "Strayed")


def test_a_run_whose_updates_nobody_wants_any_more_ends_with_its_artifact() -> None:
    snapshot = dataclasses.replace(proven(), spec=spec(workers=0))
    made = plan(snapshot)
    assert (made.status["phase"], made.status["artifact"]["sha256"]) == ("Validated", "a" * 64)
    assert "finishedAt" in made.status
    assert [ref.name for ref in plan(after(snapshot, made)).delete] == ["t"]
