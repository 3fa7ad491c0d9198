"""An algorithm is what its own file declares: one that nothing else has heard of trains, is proven and is refused."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import ALGORITHMS, LANGUAGE, OWN
from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import ActionType
from learnloop_trainer.algorithms import base as traits, find
from learnloop_trainer.algorithms.ppo import Ppo
from learnloop_trainer.distributed import Alone
from learnloop_trainer.shielded_environment import Shielded
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.rank import run

CPU = torch.device("cpu")


class Toy(Ppo):
    """Learns as PPO does, under another name."""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[traits.Traits]:
    """Registered for one test, as an algorithm's file registers it."""
    monkeypatch.setitem(ALGORITHMS, "toy", dataclasses.replace(ALGORITHMS["ppo"], name="toy"))
    yield traits.register(
        traits.Traits(
            name="toy",
            learner=Toy,
            head="policy",
            activation="tanh",
            actions=frozenset({ActionType.DISCRETE}),
            q_value=lambda learner, observations, done: done * 2.0,
        )
    )
    traits.forget("toy")


@pytest.fixture
def toy_order(toy: traits.Traits, make_order: Callable[..., Order]) -> Callable[..., Order]:

    def made(environment: str, **changes: object) -> Order:
        small = {"environments": 4, "horizon": 8, "epochs": 1, "minibatches": 1, "hidden": [8]}
        order = make_order(
            "ppo",
            steps=512,
            hyperparameters=small,
            data={"environment": environment},
            evaluation={"episodes": 4},
            **changes,
        )
        spec = order.spec.model_copy(update={"algorithm": toy.name})
        return order.model_copy(update={"spec": spec})

    return made


def test_a_registered_algorithm_trains_and_is_proven_without_another_line(toy_order, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    order = toy_order("CartPole-v1")
    assert isinstance(begin(order, Alone(), CPU).learner, Toy)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path, order.job).proof()
    assert (proof.algorithm, proof.parity.passed) == ("toy", True)


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ("Pendulum-v1", "has continuous actions, toy needs discrete ones"),
        ("teams:TwoStep", "has a team of agents, toy trains one"),
        ("motion:Courier", "has hybrid actions, toy needs discrete ones; set algorithm to ppo"),
    ],
)
def test_actions_and_teams_that_its_traits_do_not_name_are_refused(toy_order, environment, problem):
    with pytest.raises(ConfigError, match=problem):
        begin(toy_order(environment), Alone(), CPU)


def test_the_record_of_interventions_asks_it_for_the_values_it_declares(toy_order: Callable[..., Order]) -> None:
    shield = {"constraints": [{"name": "never left", "forbid": [0]}], "fallback": [1]}
    environment = begin(toy_order("CartPole-v1", safety=shield), Alone(), CPU).environment
    assert environment.worth is not None


def declared(toy: traits.Traits, **changes: object) -> None:
    """The toy with other traits, in its own place."""
    traits.forget(toy.name)
    traits.register(dataclasses.replace(toy, **changes))


@pytest.mark.parametrize("draws", [True, False])
def test_a_shield_asks_it_for_the_preferences_it_declares(toy, toy_order, draws):
    shield = {"constraints": [{"name": "never left", "forbid": [0]}], "fallback": [1]}
    order = toy_order("CartPole-v1", safety=shield)
    assert begin(order, Alone(), CPU).environment.preferences is None
    declared(toy, preferences=lambda learner, observations: np.full((len(observations), 2), learner.step), draws=draws)
    training = begin(order, Alone(), CPU)
    assert isinstance(training.environment, Shielded)
    preferences = training.environment.preferences
    assert (preferences.drawn, preferences.seed) == (draws, order.spec.seed)
    training.learner.step = 7
    assert (preferences.outputs(training.observation) == 7).all()  # of this learner, as it is now


def test_numbers_have_no_preferences(toy: traits.Traits, toy_order: Callable[..., Order]) -> None:
    declared(toy, actions=traits.ALL_ACTIONS, preferences=traits.head_outputs("policy", "tanh"))
    shield = {"constraints": [{"name": "gently", "components": [0], "maxNorm": 1}]}
    environment = begin(toy_order("Pendulum-v1", safety=shield | {"fallback": [0.0]}), Alone(), CPU).environment
    assert isinstance(environment, Shielded)
    assert environment.preferences is None


def test_every_algorithm_that_chooses_while_it_learns_declares_preferences_and_only_ppo_draws() -> None:
    choosing = {one.name for one in traits.registered() if ActionType.DISCRETE in one.actions and not one.recorded}
    assert {one.name for one in traits.registered() if one.preferences is not None} == choosing
    assert [one.name for one in traits.registered() if one.draws] == ["ppo"]


def test_two_algorithms_of_one_name_are_refused(toy: traits.Traits) -> None:
    with pytest.raises(ValueError, match="two algorithms are named toy"):
        traits.register(toy)


def test_every_algorithm_of_the_contract_is_registered() -> None:
    assert {one.name for one in traits.registered()} == set(OWN) - set(LANGUAGE)
    assert find("nobody") is None


def test_the_contract_says_which_actions_can_be_learned_and_by_whom_as_the_learners_do() -> None:
    for one in traits.registered():
        declared = ALGORITHMS[one.name]
        assert set(declared.acts) == {kind.value for kind in one.actions}, one.name
        assert (declared.from_log, declared.team) == (one.recorded, one.team), one.name
        if declared.from_log:
            assert declared.spreads == (one.deviation is not None), one.name
