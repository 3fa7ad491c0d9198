"""An agent's status for a spec that the API server had to let through."""

import pytest
from hypothesis import given, strategies as st

from learnloop_api import names
from learnloop_operator.agents.decide_agent import decide
from learnloop_operator.core.plan import Plan

from .test_learning_agent import created, situation, spec

SHA = "ab" * 32


def ready(plan: Plan) -> dict:
    return next(item for item in plan.status["conditions"] if item["type"] == "Ready")


def scheduled(line: str) -> dict:
    body = spec()
    body["training"]["triggers"] = {"schedule": line}
    return body


@pytest.mark.parametrize("line", ["0 0 31 2 *", "99 3 * * *", "a b c d e", "*/0 * * * *", "H H * * *", "R 3 * * *"])
def test_a_schedule_that_never_comes_is_named_with_its_value_and_an_example(line: str) -> None:
    plan = decide(situation(0, spec=scheduled(line)))
    message = ready(plan)
    assert (message["status"], message["reason"]) == ("False", "TriggerInvalid")
    assert f"spec.training.triggers.schedule: {line!r}" in message["message"]
    assert "0 3 * * *" in message["message"]
    assert created(plan) == []


@given(st.lists(st.text("0123456789*/,-LR#ahW", min_size=1, max_size=6), min_size=5, max_size=5).map(" ".join))
def test_no_schedule_whatsoever_ends_in_an_exception(line: str) -> None:
    decide(situation(0, spec=scheduled(line)))


def test_a_pinned_model_of_another_namespace_is_reported() -> None:
    pin = {"model": {"uri": f"learnloop://theirs/{SHA}", "sha256": SHA}}
    message = ready(decide(situation(0, spec=spec(deployment=pin))))
    assert message["reason"] == "ModelOfAnotherNamespace"
    assert message["message"].startswith("spec.deployment.model.uri: learnloop://theirs/")


def test_actors_that_cannot_start_are_named_and_the_agent_is_not_ready() -> None:
    plan = decide(situation(0, actors_trouble="pod la-actor-x: ErrImagePull: not found"))
    assert plan.status["phase"] == "Degraded"
    assert (ready(plan)["status"], ready(plan)["reason"]) == ("False", "ActorsNotPlaying")
    assert "ErrImagePull" in ready(plan)["message"]


def test_an_endless_train_annotation_trains_once() -> None:
    notes = {names.ANNOTATION_TRAIN: "x" * 200_000}
    first = decide(situation(0, annotations=notes))
    assert created(first) == ["la-1"]
    assert first.status["observedTrain"] == "x" * 1024
    assert created(decide(situation(0, annotations=notes, before=first.status))) == []


def playing(environment: str, algorithm: str = "ppo") -> dict:
    body = spec()
    body["task"] = {"environment": {"name": environment}}
    body["training"]["template"]["algorithm"] = algorithm
    return body


@pytest.mark.parametrize(
    ("name", "alike"), [("FrozenLak-v1", "FrozenLake-v1"), ("Taxi-v3", "Taxi-v4"), ("cartpole-v1", "CartPole-v1")]
)
def test_a_misspelt_environment_is_named_with_the_one_that_was_meant(name: str, alike: str) -> None:
    message = ready(decide(situation(0, spec=playing(name))))
    assert message["reason"] == "SpacesUnknown"
    assert f"spec.task.environment.name: '{name}' is not an environment" in message["message"]
    assert f"did you mean {alike}" in message["message"]


def test_an_environment_that_is_like_no_other_is_said_to_need_its_spaces() -> None:
    message = ready(decide(situation(0, spec=playing("Warehouse-v1"))))
    assert "are unknown; set observations" in message["message"]
