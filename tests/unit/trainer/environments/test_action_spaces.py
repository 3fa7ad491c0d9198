"""Discrete, continuous and hybrid actions: validated, projected, scaled, sampled, and told to Gymnasium and back."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from gymnasium.utils.env_checker import check_env
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from as_gymnasium import SIMULATIONS
from learnloop_environments import action_space, make
from learnloop_environments.interfaces.gymnasium_vectors import GymnasiumVector
from learnloop_environments.randomness import Split
from learnloop_environments.spaces import ActionSpace, ActionType, Bounds, mask

LOW, HIGH = np.float32([-2, 0.1]), np.float32([0.7, 0.3])
SPACES = {
    ActionType.DISCRETE: ActionSpace(4),
    ActionType.CONTINUOUS: ActionSpace(2, Bounds(LOW, HIGH)),
    ActionType.HYBRID: ActionSpace(3, Bounds(np.float32([0, *LOW]), np.float32([2, *HIGH]), 3)),
}
KINDS = pytest.mark.parametrize("kind", SPACES)


def drawn(space: ActionSpace, count: int = 300) -> np.ndarray:
    random = np.random.default_rng(0)
    return space.sample(lambda numbers: random.random((count, numbers)))


@KINDS
def test_what_is_sampled_is_valid_and_has_its_kind(kind: ActionType) -> None:
    space = SPACES[kind]
    assert space.type is kind
    assert space.validate(drawn(space)).all()


@KINDS
@given(data=st.data())
def test_whatever_is_wanted_the_nearest_valid_action_is_valid_and_valid_ones_stay(kind, data):
    space = SPACES[kind]
    shape = (5,) if kind is ActionType.DISCRETE else (5, space.actions)
    wanted = data.draw(arrays(np.float32, shape, elements=st.floats(width=32)))
    assert space.validate(space.project(wanted)).all()
    fine = drawn(space)
    assert np.array_equal(space.project(fine), fine)


@KINDS
def test_normalised_actions_lie_within_one_and_come_back(kind: ActionType) -> None:
    space = SPACES[kind]
    actions = drawn(space)
    scaled = space.normalise(actions)
    numbers = scaled if kind is ActionType.CONTINUOUS else scaled[:, 1:] if kind is ActionType.HYBRID else np.zeros(1)
    assert np.abs(numbers).max() <= 1.0001
    assert np.allclose(space.denormalise(scaled), actions, atol=1e-6)
    if kind is not ActionType.CONTINUOUS:
        assert np.array_equal(scaled.reshape(len(actions), -1)[:, 0], actions.reshape(len(actions), -1)[:, 0])


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (ActionType.DISCRETE, 4),
        (ActionType.DISCRETE, -1),
        (ActionType.CONTINUOUS, [0.8, 0.2]),
        (ActionType.CONTINUOUS, [np.nan, 0.2]),
        (ActionType.CONTINUOUS, [0.0]),
        (ActionType.HYBRID, [3, 0.0, 0.2]),
        (ActionType.HYBRID, [0.5, 0.0, 0.2]),
        (ActionType.HYBRID, [1, 0.0, np.inf]),
    ],
)
def test_what_may_not_be_done_is_invalid(kind: ActionType, action) -> None:
    assert not SPACES[kind].validate(np.asarray([action]))[0]


def test_masked_actions_are_never_the_best() -> None:
    logits, allowed = np.float32([[5, 1, -2], [0, 9, 9]]), np.array([[False, True, True], [True, False, False]])
    assert mask(logits, allowed).argmax(axis=1).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "kind", "actions"),
    [
        ("motion:Navigation", ActionType.CONTINUOUS, 2),
        ("motion:Manipulation", ActionType.CONTINUOUS, 7),
        ("motion:Courier", ActionType.HYBRID, 2),
        ("Acrobot-v1", ActionType.DISCRETE, 3),
    ],
)
def test_an_environments_name_is_enough_to_know_its_actions(name: str, kind: ActionType, actions: int) -> None:
    space = action_space(name)
    assert (space.type, space.actions) == (kind, actions)


@pytest.mark.parametrize("name", SIMULATIONS)
def test_every_environment_has_a_space_and_takes_what_is_sampled_from_it(name: str) -> None:
    world = make(name, Split.TRAINING, 0, range(3))
    space, observations = ActionSpace.of(world), world.reset()
    agents = int(np.prod(observations.shape[:-1])) // 3
    actions = drawn(space, 3 * agents)
    step = world.step(actions.reshape(*observations.shape[:-1], *actions.shape[1:]))
    assert np.isfinite(step.successor).all()


class Declared(gymnasium.Env[Any, Any]):
    """Records its inputs."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Tuple((Discrete(3, start=5), Box(-2.0, 2.0, (2,), np.float32)))

    def reset(self, **_):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(1, np.float32), float(action[0]) + float(action[1][1]), False, False, {}


def test_a_hybrid_environment_of_gymnasium_gets_its_own_numbers() -> None:
    world = GymnasiumVector("Told", Split.TRAINING, 0, range(2), Declared)
    world.reset()
    assert (world.actions, world.bounds is not None and world.bounds.choices) == (3, 3)
    step = world.step(np.float32([[0, 0, 0.5], [2, 0, -1]]))
    assert step.reward.tolist() == [5.5, 6.0]


def test_gymnasium_finds_no_fault_with_the_hybrid_courier() -> None:
    check_env(gymnasium.make("learnloop/Courier-v1").unwrapped, skip_render_check=True)
    many = gymnasium.make_vec("learnloop/Courier-v1", num_envs=3, vectorization_mode="vector_entry_point")
    many.reset(seed=0)
    observation, reward, *_ = many.step(many.action_space.sample())
    assert (observation.shape, reward.shape) == ((3, 9), (3,))


def test_a_parcel_handed_over_elsewhere_is_lost_and_at_the_right_place_it_pays() -> None:
    world = make("motion:Courier", Split.TRAINING, 0, range(2))
    world.reset()
    state = world.state()
    state["body.place"][:], state["body.goal"][:] = [[0, 0], [0, 0]], [[0.1, 0], [0.9, 0]]
    world.restore(state)
    step = world.step(np.float32([[2, 0], [2, 0]]))
    assert step.reward.tolist() == [1.0, -1.0]
    assert step.terminated.all()
    assert step.success.tolist() == [True, False]
