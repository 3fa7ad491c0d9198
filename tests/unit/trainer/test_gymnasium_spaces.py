"""Which of other libraries' environments can be played, and what is said of those that cannot."""

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Tuple

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

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), (action, self.action_space)
        self.age += 1
        reward = float(np.sum(action)) if not isinstance(action, tuple) else 0.0
        return self.observation_space.sample(), reward, self.age == 3, False, {}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("own_spaces")
    monkeypatch.setitem(sys.modules, "own_spaces", module)
    return module


def with_spaces(module: types.ModuleType, **spaces: Any) -> None:
    module.Own = type("Own", (Own,), spaces)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", WIDTHS)
def test_every_environment_that_gymnasium_brings_without_extras_is_played(name: str) -> None:
    world = make(name, Split.TRAINING, 0, range(3))
    seen = world.reset()
    assert seen.shape == (3, world.observations) == (3, WIDTHS[name])
    assert seen.dtype == np.float32
    ended = 0
    for _ in range(260):
        actions = np.zeros(3, dtype=np.int64) if world.bounds is None else np.zeros((3, 1), dtype=np.float32)
        step = world.step(actions)
        assert step.successor.shape == seen.shape
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
def test_composed_observations_are_flattened_and_last_ones_too(own: types.ModuleType, space: Any, width: int) -> None:
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
    ("spaces", "said"),
    [
        ({"observation_space": Box(0, 255, (96, 96, 3), np.uint8)}, "are images.*spec.data.environmentConfigMap"),
        ({"observation_space": Graph(TWO, None)}, "Graph.*cannot be flattened"),
        ({"action_space": Dict({"a": Discrete(2)})}, r"has actions Dict\("),
        ({"action_space": MultiDiscrete([100, 100, 100])}, "1000000 combinations"),
        ({"action_space": Box(-np.inf, np.inf, (1,), np.float32)}, "has actions Box"),
    ],
    ids=["images", "graphs", "dict actions", "too many combinations", "unbounded numbers"],
)
def test_what_cannot_be_played_is_refused_with_its_space_and_the_fix(
    own: types.ModuleType, spaces: dict[str, Any], said: str
) -> None:
    with_spaces(own, **spaces)
    with pytest.raises(ConfigError, match=said):
        make("own_spaces:Own", Split.TRAINING, 0, range(1))


@pytest.mark.parametrize(
    ("name", "extra"), [("LunarLander-v3", "box2d"), ("CarRacing-v3", "box2d"), ("HalfCheetah-v5", "mujoco")]
)
def test_what_needs_an_extra_of_gymnasium_is_refused_with_its_name(name: str, extra: str) -> None:
    with pytest.raises(ConfigError, match=rf"gymnasium\[{extra}\]"):
        make(name, Split.TRAINING, 0, range(1))
