"""Other libraries' environments that can be played, and the refusals of those that cannot."""

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple
from pettingzoo.utils import parallel_to_aec

from as_gymnasium import Parallel
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split

TWO = Box(0, 1, (2,), np.float32)
WIDTHS = {
    "FrozenLake-v1": 16,
    "CliffWalking-v1": 48,
    "Taxi-v4": 500,
    "Blackjack-v1": 32 + 11 + 2,
    "Acrobot-v1": 6,
    "MountainCar-v0": 2,
    "MountainCarContinuous-v0": 2,
}


class Own(gymnasium.Env[Any, Any]):
    """Any spaces; an episode of three steps; the reward is what was done."""

    observation_space: gymnasium.Space[Any] = TWO
    action_space: gymnasium.Space[Any] = Discrete(2)

    def reset(self, *, seed: int | None = None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, self.action_space)
        self.age += 1
        reward = float(np.sum(action)) if not isinstance(action, tuple) else 0.0
        return self.observation_space.sample(), reward, self.age == 3, False, {}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("own_spaces")
    monkeypatch.setitem(sys.modules, "own_spaces", module)
    return module


def with_spaces(module: types.ModuleType, **spaces) -> None:
    module.Own = type("Own", (Own,), spaces)


@pytest.mark.parametrize("name", WIDTHS)
def test_every_environment_that_gymnasium_brings_without_extras_is_played(name: str) -> None:
    world = make(name, Split.TRAINING, 0, range(3))
    observation = world.reset()
    assert observation.shape == (3, world.observations) == (3, WIDTHS[name])
    assert observation.dtype == np.float32
    ended = 0
    for _ in range(260):
        actions = np.zeros(3, dtype=np.int64) if world.bounds is None else np.zeros((3, 1), dtype=np.float32)
        step = world.step(actions)
        assert step.successor.shape == observation.shape
        ended += int((step.terminated | step.truncated).sum())
    assert ended or name.startswith(("Acrobot", "Cliff", "MountainCarC"))
    world.close()


def test_a_whole_number_is_seen_as_one_place_among_many() -> None:
    world = make("FrozenLake-v1", Split.TRAINING, 0, range(2))
    assert world.reset().tolist() == [[1.0] + 15 * [0.0]] * 2


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (Dict({"where": TWO, "what": Discrete(3)}), 5),
        (MultiDiscrete([2, 3]), 5),
        (MultiBinary(4), 4),
        (Tuple((TWO, Dict({"deep": Discrete(2)}))), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_composed_observations_are_flattened_and_last_ones_too(own: types.ModuleType, space, width: int) -> None:
    with_spaces(own, observation_space=space)
    world = make("own_spaces:Own", Split.TRAINING, 0, range(2))
    assert world.reset().shape == (2, width)
    for _ in range(4):
        step = world.step(np.zeros(2, dtype=np.int64))
        assert step.successor.shape == step.observation.shape == (2, width)


def test_several_choices_at_once_are_numbered_like_digits(own: types.ModuleType) -> None:
    with_spaces(own, action_space=MultiDiscrete([3, 4], start=[1, 0]))
    world = make("own_spaces:Own", Split.TRAINING, 0, range(12))
    assert (world.actions, world.bounds) == (12, None)
    world.reset()
    assert world.step(np.arange(12)).reward.tolist() == [
        1 + first + second for first in range(3) for second in range(4)
    ]


def test_switches_are_choices_too(own: types.ModuleType) -> None:
    with_spaces(own, action_space=MultiBinary(3))
    world = make("own_spaces:Own", Split.TRAINING, 0, range(8))
    world.reset()
    assert world.step(np.arange(8)).reward.tolist() == [0, 1, 1, 2, 1, 2, 2, 3]


def test_numbers_in_rows_and_columns_are_told_in_rows_and_columns(own: types.ModuleType) -> None:
    with_spaces(own, action_space=Box(-1, 1, (2, 2), np.float32))
    world = make("own_spaces:Own", Split.TRAINING, 0, range(1))
    world.reset()
    assert world.actions == 4
    assert world.step(np.full((1, 4), 0.5, dtype=np.float32)).reward.tolist() == [2.0]


@pytest.mark.parametrize(
    ("spaces", "sentence"),
    [
        ({"observation_space": Graph(TWO, None)}, "Graph.*cannot be flattened"),
        ({"observation_space": Text(5)}, "Text cannot be flattened"),
        ({"observation_space": Discrete(70_000)}, "70000 numbers, 1 to 65536 are possible; leave some"),
        ({"action_space": Dict({"a": Text(5)})}, r"has actions Dict\(.*cannot choose a Text; choose Box"),
        ({"action_space": Discrete(70_000)}, "70000 combinations"),
        ({"action_space": Box(0, 2**40, (1,), np.int64)}, "integer Box with large bounds; keep them within"),
        ({"action_space": Box(np.float32([0, 1]), np.float32([1, 1]))}, "cannot vary.*leave constants out"),
        ({"action_space": Box(-1e300, 1e300, (1,), np.float64)}, "not bounded; give it finite bounds"),
        ({"action_space": MultiDiscrete([100, 100, 100])}, "1000000 combinations"),
        ({"action_space": Box(-np.inf, np.inf, (1,), np.float32)}, "has actions Box"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_played_is_refused_with_its_space_and_the_fix(own, spaces, sentence):
    with_spaces(own, **spaces)
    with pytest.raises(ConfigError, match=sentence):
        make("own_spaces:Own", Split.TRAINING, 0, range(1))


WRONG = [
    (Dict({"camera": TWO}), np.zeros(2, np.float32), "that is an array of float32"),
    (Dict({"camera": TWO}), {"radar": np.zeros(2)}, "that is dict of 1"),
    (Dict({"camera": TWO}), {"camera": np.zeros(3)}, "that is dict of 1"),
    (Tuple((TWO, Discrete(2))), (np.zeros(2),), "that is tuple of 1"),
    (Tuple((TWO, Discrete(2))), (np.zeros(2), 2), "that is tuple of 2"),
    (TWO, np.zeros(3, np.float32), r"shape \(3,\)"),
    (TWO, {"position": 1}, "that is dict of 1"),
    (TWO, [[1.0], [1.0, 2.0]], "that is list of 2"),
    (TWO, np.asarray(["a", "b"]), "that is an array of <U1"),
    (Box(0, 9, (1,), np.uint8), np.asarray([300]), "that is an array of int64"),
    (Box(0, 9, (1,), np.int64), np.asarray([0.5]), "that is an array of float64"),
    (Discrete(3), 3, "that is int 3"),
    (Discrete(3), -1, "that is int -1"),
    (Discrete(3), 1.0, "that is float 1.0"),
    (Discrete(3), None, "that is NoneType"),
    (MultiDiscrete([2, 3]), np.asarray([0, 3]), "that is an array of int64"),
    (MultiDiscrete([2, 3]), np.asarray([-1, 0]), "that is an array of int64"),
    (MultiDiscrete([2, 3]), np.asarray([0.0, 1.0]), "that is an array of float64"),
    (MultiBinary(2), np.asarray([0, 2]), "that is an array of int64"),
]


@pytest.mark.parametrize(("space", "value", "sentence"), WRONG, ids=lambda value: str(value)[:24])
@pytest.mark.parametrize("when", [0, 2], ids=["immediately", "later"])
def test_an_observation_that_is_not_in_its_space_is_refused_with_both(own, space, value, sentence, when):
    def step(self: Own, action):
        _, *rest = Own.step(self, action)
        return (value if self.age == when else self.observation_space.sample()), *rest

    def reset(self: Own, **options):
        observation, info = Own.reset(self, **options)
        return (observation if when else value), info

    module = own
    module.Own = type("Own", (Own,), {"observation_space": space, "step": step, "reset": reset})
    world = make("own_spaces:Own", Split.TRAINING, 0, range(1))

    def play() -> None:
        world.reset()
        for _ in range(when):
            world.step(np.zeros(1, dtype=np.int64))

    with pytest.raises(ConfigError, match=f"^spec.data.environment: 'own_spaces:Own' has observations .*{sentence}"):
        play()


@pytest.mark.parametrize(
    ("space", "value", "row"),
    [
        (TWO, [7, -7], [7, -7]),
        (TWO, np.asarray([np.nan, 1.0]), [np.nan, 1.0]),
        (Discrete(3, start=5), np.uint8(6), [0, 1, 0]),
        (Discrete(2), True, [0, 1]),
        (Dict({"b": Discrete(2), "a": TWO}), {"a": (0.5, 1), "b": np.bool_(False)}, [0.5, 1, 1, 0]),
        (Tuple((Discrete(2), TWO)), [1, [0, 1]], [0, 1, 0, 1]),
        (MultiDiscrete([2, 3], start=[1, 0]), [2, 1], [0, 1, 0, 1, 0]),
        (MultiBinary(2), [True, False], [1, 0]),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_has_its_spaces_form_is_seen_whatever_its_type(own, space, value, row):
    """Bounds are often left, and what is not finite is found where all environments' steps pass."""
    with_spaces(own, observation_space=space, reset=lambda _, **options: (value, {}))
    world = make("own_spaces:Own", Split.TRAINING, 0, range(2))
    np.testing.assert_array_equal(world.reset(), np.asarray([row, row], dtype=np.float32))


def test_an_agents_observation_that_is_not_in_its_space_is_refused_too(own: types.ModuleType) -> None:
    class Team(Parallel):
        def __init__(self) -> None:
            super().__init__("teams:Cooperative")

        def reset(self, *args, **options):
            observations, infos = super().reset(*args, **options)
            return observations | {"agent_1": np.zeros(1, np.float32)}, infos

    own.Own = Team
    with pytest.raises(ConfigError, match=r"has observations Box.*returns an observation that is an array.*\(1,\)"):
        make("own_spaces:Own", Split.TRAINING, 0, range(1)).reset()


def test_agents_that_act_in_turns_are_refused_with_a_way_out(own) -> None:
    own.Own = lambda: parallel_to_aec(Parallel("teams:Cooperative"))
    with pytest.raises(ConfigError, match=r"whose agents act in turns; name its parallel_env, or convert it by"):
        make("own_spaces:Own", Split.TRAINING, 0, range(1))


@pytest.mark.parametrize(
    ("name", "extra"), [("LunarLander-v3", "box2d"), ("CarRacing-v3", "box2d"), ("HalfCheetah-v5", "mujoco")]
)
def test_what_needs_an_extra_of_gymnasium_is_refused_with_its_name(name: str, extra: str) -> None:
    with pytest.raises(ConfigError, match=rf"gymnasium\[{extra}\]"):
        make(name, Split.TRAINING, 0, range(1))
