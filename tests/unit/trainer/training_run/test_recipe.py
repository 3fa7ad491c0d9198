"""A proof belongs to the run that was asked for, whichever attempt gave it, and to no other run of the same name."""

from collections.abc import Callable

import pytest

from learnloop_api.names import ENV_ENVIRONMENT_DIRECTORY
from learnloop_trainer.training_order import Order, recipe_sha256
from learnloop_trainer.training_run.rank import already_proven
from testing.training import engines
from testing.training.training_builders import proof

DATA = {"environment": "CartPole-v1", "learningAgentRef": {"name": "la"}}
DQN = {"environments": 8, "bufferSize": 1000, "batchSize": 32, "learningStarts": 64, "hidden": [16]}


def proven(order: Order, wanted: Order) -> bool:
    return already_proven(wanted, proof(algorithm=order.spec.algorithm, recipe_sha256=recipe_sha256(order)))


@pytest.mark.parametrize(
    "changes",
    [
        {"hyperparameters": {**DQN, "learningRate": 1e-5}},
        {"data": {**DATA, "filter": {"success": True}}},
        {"data": {**DATA, "learningAgentRef": {"name": "another"}}},
        {"data": {**DATA, "randomise": [{"parameter": "length", "low": 0.4, "high": 0.6}]}},
        {"evaluation": {"episodes": 9}},
        {"shaping": {"potential": True}},
        {"seed": 7},
    ],
    ids=str,
)
def test_a_proof_is_of_no_run_that_differs_in_anything_that_was_asked(make_order, changes):
    order = make_order("dqn", data=DATA, hyperparameters=DQN)
    assert proven(order, order)
    assert not proven(order, make_order(**{"algorithm": "dqn", "data": DATA, "hyperparameters": DQN} | changes))


def test_a_proof_is_of_no_run_by_another_reward_policy_or_against_another_policy(make_order):
    order = make_order(data={"environment": "CartPole-v1", "rewards": "policy"})
    for update in (
        {"reward_policy": {"name": "gentle", "revision": "r1"}},
        {"baseline_uri": "learnloop://ns/" + "b" * 64},
    ):
        assert not proven(order, Order.model_validate(order.model_dump() | update))


def test_a_rank_that_stays_adopts_its_proof_although_its_own_policy_serves_by_now(make_order):
    order = make_order(continuous={"steps": 512})
    again = {"baseline_uri": "learnloop://ns/" + "b" * 64, "baseline_sha256": "b" * 64, "attempt": 1}
    assert proven(order, order.model_copy(update=again))
    update = Order.model_validate(order.model_dump() | {"update": {"number": 1, "goes_on": True}})
    assert not proven(update, update.model_copy(update=again)), "of an update, the policy to beat is part"


def test_a_proof_is_of_no_run_with_other_code_of_the_environment(make_order, tmp_path, monkeypatch):
    monkeypatch.setenv(ENV_ENVIRONMENT_DIRECTORY, str(tmp_path))
    (tmp_path / "world.py").write_text("GRAVITY = 9.8\n")
    before = recipe_sha256(make_order())
    (tmp_path / "world.py").write_text("GRAVITY = 1.6\n")
    assert recipe_sha256(make_order()) != before


def test_a_proof_is_of_the_same_run_with_other_ranks_and_in_a_later_attempt(make_order: Callable[..., Order]) -> None:
    order = make_order()
    later = make_order(workers=3, suspend=True, priority=90, ttlSecondsAfterFinished=5)
    assert proven(order, later.model_copy(update={"attempt": 2}))


def test_a_proof_is_of_no_run_by_another_image() -> None:
    one, other = (engines.order(pod={"image": image, "command": ["own"]}) for image in ("own:1", "own:2"))
    assert recipe_sha256(one) != recipe_sha256(other)
