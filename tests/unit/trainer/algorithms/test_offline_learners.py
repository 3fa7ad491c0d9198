"""Conservative and implicit Q-learning: gradients by hand against autograd, exact resumption, what a log must have."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import cql, iql_offline
from learnloop_trainer.algorithms.action_heads import fitting
from learnloop_trainer.algorithms.base import Occasion
from learnloop_trainer.distributed import Alone
from learnloop_trainer.neural.networks import forward
from learnloop_trainer.recordings import Recording, successors
from learnloop_trainer.replay import Transitions
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_training import begin
from testing.training.interrupted_runs import goes_on_exactly
from testing.training.recordings import recorded

CPU = torch.device("cpu")
SMALL = {"hidden": [16], "batchSize": 32}
WORLDS = {"choices": "CartPole-v1", "numbers": "motion:PointGoals", "hybrid": "motion:Courier"}


def batch_of(environment, size: int = 24) -> Transitions:
    """Made-up transitions of the environment's spaces."""
    random = np.random.default_rng(3)
    states = random.normal(size=(2, size, environment.observations)).astype(np.float32)
    action = random.integers(environment.actions, size=size)
    if environment.bounds is not None:
        action = random.uniform(-1, 1, (size, environment.actions)).astype(np.float32)
        if environment.bounds.choices:
            action[:, 0] = random.integers(environment.bounds.choices, size=size)
    reward = random.normal(size=size).astype(np.float32)
    alive = (random.random(size) < 0.8).astype(np.float32)
    return Transitions(*(torch.from_numpy(array) for array in (states[0], states[1], action, reward, alive)))


def near(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    assert wanted.abs().max() > 1e-4, "a gradient of zeros proves nothing"
    torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-6)


def test_the_conservative_gradient_is_that_of_its_equation() -> None:
    world = make("CartPole-v1", Split.TRAINING, 0, range(1))
    parameters = hyperparameters("cql", hidden=[16, 16], conservatism=0.7)
    learner = cql.Cql(parameters, world, Occasion(5, 1000, 1, Alone()), CPU)
    learner.target.add_(0.1)
    batch, network = batch_of(world), learner.network
    whole = cql.loss(network.leaves, network.views(learner.target), batch, parameters) / 24
    torch.autograd.backward(whole)
    wanted = network.gradient.clone()
    with torch.inference_mode():
        learner.gradient(batch, 24)
    near(network.gradient, wanted)


@pytest.mark.parametrize("kind", WORLDS)
def test_the_implicit_gradients_are_those_of_their_equations(kind: str) -> None:
    world = make(WORLDS[kind], Split.TRAINING, 0, range(1))
    parameters = hyperparameters("iql-offline", hidden=[16, 16], expectile=0.8)
    learner = iql_offline.IqlOffline(parameters, world, Occasion(5, 1000, 1, Alone()), CPU)
    learner.target.add_(0.05)
    batch, head, update = batch_of(world), fitting(world), learner._gradients
    policy, value, critics = learner.network, learner.value, learner.critics
    choices = world.actions if world.bounds is None else world.bounds.choices
    pairs = torch.cat((batch.observation, iql_offline.critic_actions(batch.action, choices)), 1)
    target = critics.views(learner.target)
    least = torch.minimum(*(forward(target, name, "relu", pairs).squeeze(1) for name in iql_offline.CRITICS))
    now = forward(value.leaves, "value", "relu", batch.observation).squeeze(1)
    u = least - now
    torch.autograd.backward(((0.8 - (u < 0).float()).abs() * u.square()).mean())
    with torch.no_grad():
        goal = batch.reward + 0.99 * batch.alive * forward(value.leaves, "value", "relu", batch.successor).squeeze(1)
    errors = [forward(critics.leaves, name, "relu", pairs).squeeze(1) - goal for name in iql_offline.CRITICS]
    torch.autograd.backward([error.square().mean() / 2 for error in errors])
    weight = torch.rand(24, generator=torch.Generator().manual_seed(1))
    taken = iql_offline.before_tanh(batch.action, world.bounds)
    outputs = forward(policy.leaves, "policy", "tanh", batch.observation)
    torch.autograd.backward(-(weight * head.log_prob(policy.leaves, outputs, taken)).mean())
    wanted = [network.gradient.clone() for network in (value, critics, policy)]
    with torch.inference_mode():
        advantage, then = update.judge(batch)
        update.by_value(advantage, 24)
        update.by_critics(batch, then, 24)
        update.by_policy(batch, taken, weight, 24)
    torch.testing.assert_close(advantage, u.detach())
    for network, gradient in zip((value, critics, policy), wanted, strict=True):
        near(network.gradient, gradient)


def test_the_expectile_of_one_half_is_the_mean_and_a_high_one_is_near_the_best() -> None:
    outcomes = torch.tensor([0.0, 1.0, 2.0, 9.0])
    for expectile, wanted in ((0.5, 3.0), (0.99, 8.7)):
        value = torch.zeros(())
        for _ in range(4000):
            value -= 0.05 * iql_offline.expectile_slope(outcomes - value, expectile).mean()
        assert float(value) == pytest.approx(wanted, abs=0.1)


def recording(last: list[bool], terminated: list[bool]) -> Recording:
    size = len(last)
    observation = np.arange(size, dtype=np.float32)[:, None].repeat(4, axis=1)
    zeros = np.zeros(size, dtype=np.float32)
    return Recording(observation, np.zeros(size, np.int64), zeros, zeros, np.asarray(last), np.asarray(terminated))


def test_what_followed_a_cut_is_unknown_and_what_followed_an_end_is_worth_nothing() -> None:
    following = successors(recording([False, True, False, True], [False, True, False, False]))
    assert following.rows.tolist() == [0, 1, 2], "step 3 was cut off: its successor is unknown"
    assert following.observation[:, 0].tolist() == [1, 1, 3]
    assert following.alive.tolist() == [1, 0, 1]


def of_log(make_order: Callable[..., Order], tmp_path: Path, algorithm: str, world: str = "CartPole-v1") -> Order:
    recorded(world, tmp_path / "log.jsonl")
    block = {"hyperparameters": {**SMALL, "recording": (tmp_path / "log.jsonl").as_uri()}}
    return make_order(algorithm, steps=100_000, data={"environment": world}, **block)


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [("cql", "CartPole-v1"), ("iql-offline", "CartPole-v1"), ("iql-offline", "motion:PointGoals")],
)
def test_an_interrupted_run_ends_with_the_same_weights_whatever_is_logged_since(make_order, tmp_path, algorithm, world):
    order, other = of_log(make_order, tmp_path, algorithm, world), "this file is something else by now"
    store = DirectoryStore(tmp_path, "small-1")
    goes_on_exactly(order, 2, 2, store, meanwhile=lambda: (tmp_path / "log.jsonl").write_text(other))


def test_conservative_q_learning_refuses_numbers(make_order: Callable[..., Order]) -> None:
    with pytest.raises(ConfigError, match=r"has continuous actions, cql needs discrete ones; .* bc or iql"):
        begin(make_order("cql", hyperparameters=SMALL, data={"environment": "Pendulum-v1"}), Alone(), CPU)


LOGGED_NUMBERS = {"data": {"spaces": "uniform://continuous/-1..1*2?observations=4", "learningAgentRef": {"name": "la"}}}


@pytest.mark.parametrize(
    ("algorithm", "fields", "words"),
    [
        ("bc", {}, r"spec.algorithm: 'bc' has no density .* iql-offline, or name spec.data.env"),
        ("iql-offline", {}, r"spec.export.behaviour.kind: 'greedy' has no density .* set it to sampled, or name spec"),
        ("bc", {"gates": {"significant": False, "minReturn": 1.0}}, "no gate passes"),
        ("bc", {"gates": {"significant": False}}, ""),
        ("iql-offline", {"export": {"behaviour": {"kind": "sampled"}}}, ""),
    ],
)
def test_numbers_that_the_log_cannot_judge_are_refused_before_they_are_learned_where_a_gate_is_set(
    make_order: Callable[..., Order], algorithm: str, fields: dict, words: str
) -> None:
    order = make_order(algorithm, **{**LOGGED_NUMBERS, **fields})
    if words:
        with pytest.raises(ConfigError, match=words):
            begin(order, Alone(), CPU)
    else:
        assert begin(order, Alone(), CPU).learner.step == 0


def test_actions_of_another_kind_are_told_by_the_field_that_says_them(make_order: Callable[..., Order]) -> None:
    with pytest.raises(ConfigError, match=r"spec.data.spaces: .*has continuous actions, cql needs discrete ones"):
        begin(make_order("cql", hyperparameters=SMALL, **LOGGED_NUMBERS), Alone(), CPU)


def test_a_log_of_single_steps_that_were_cut_off_is_refused(make_order: Callable[..., Order]) -> None:
    world = make("CartPole-v1", Split.TRAINING, 0, range(1))
    cut = Occasion(0, 1000, 1, Alone(), lambda: recording([True, True], [False, False]))
    learner = cql.Cql(hyperparameters("cql", hidden=[8]), world, cut, CPU)
    with pytest.raises(ConfigError, match="has no step whose successor is known"):
        learner.iterate(world.reset())


def test_values_are_held_down_where_nobody_tried_the_action() -> None:
    """A log in which only action 0 was ever taken: without conservatism action 1 may seem better."""
    size = 64
    rows = np.random.default_rng(0).normal(size=(size, 4)).astype(np.float32)
    log = Recording(
        rows,
        np.zeros(size, np.int64),
        np.ones(size, np.float32),
        np.zeros(size, np.float32),
        np.ones(size, np.bool_),
        np.ones(size, np.bool_),
    )
    world = make("CartPole-v1", Split.TRAINING, 0, range(1))
    shares = {}
    for conservatism in (0.0, 1.0):
        parameters = hyperparameters("cql", hidden=[16], batch_size=32, conservatism=conservatism)
        learner = cql.Cql(parameters, world, Occasion(1, 32 * 32 * 10, 1, Alone(), lambda: log), CPU)
        for _ in range(10):
            learner.iterate(world.reset())
        values = forward(learner.network.leaves, "q", "relu", torch.from_numpy(rows)).detach().numpy()
        shares[conservatism] = float((values[:, 0] > values[:, 1]).mean())
    assert shares[1.0] == 1.0 > shares[0.0]
