"""Environments that break their library's rules: played where their meaning is clear, else refused in one sentence."""

import sys
import types
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space

from learnloop_environments import make
from learnloop_environments.errors import EXIT_NEVER_RETRY, ConfigError, EnvironmentFailed, EnvironmentMistaken
from learnloop_environments.randomness import Split
from learnloop_environments.spaces import VectorEnvironment
from learnloop_trainer.evaluation.held_out_episodes import Uniform, play

ONE = Box(0, 1, (1,), np.float32)
NAME = "'own_faults:Own'"


class Bare:
    """Methods and spaces, no base class and nothing else."""

    observation_space: Space[Any] = ONE
    action_space: Space[Any] = Discrete(2)
    answer: Any = (np.zeros(1), 1.0, True, False, {})

    def reset(self, seed: int | None = None):
        return np.zeros(1), {}

    def step(self, action):
        del action
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("own_faults")
    monkeypatch.setitem(sys.modules, "own_faults", module)
    return module


def opened(own, base: type, episodes: int = 2, **changed) -> VectorEnvironment:
    own.Own = type("Own", (base,), changed)
    return make("own_faults:Own", Split.HELD_OUT, 0, range(episodes))


def test_a_class_with_its_methods_and_spaces_alone_is_played(own: types.ModuleType) -> None:
    world = opened(own, Bare)
    world.reset()
    step = world.step(np.zeros(2, dtype=np.int64))
    assert (step.reward.tolist(), step.terminated.tolist(), step.success) == ([1.0, 1.0], [True, True], None)
    world.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((np.zeros(1), 1.0, True, {}), "returns tuple of 4 from step; have it return observation, reward, terminated"),
        ((np.zeros(1), np.ones(1), True, False, {}), "have it return one number as its reward"),
        ((np.zeros(1), None, True, False, {}), "returns None from step; have it return one number as its reward"),
        ((np.zeros(1), "1", True, False, {}), "one number as its reward"),
        ((np.zeros(1), 1.0, np.asarray([True]), False, {}), "one number as its terminated"),
        ((np.zeros(1), 1.0, True, False, {"is_success": np.asarray([True])}), "one number as its is_success"),
        (None, "returns None from step"),
        (KeyError("thermometer"), "raised KeyError: 'thermometer' in step, call 3; correct the environment"),
        (TypeError("takes 1"), "raised TypeError"),
        (NotImplementedError("later"), "raised NotImplementedError"),
    ],
    ids=str,
)
def test_what_another_attempt_would_meet_again_is_never_tried_again(own, answer, sentence):
    world = opened(own, Bare, answer=answer)
    world.reset()
    with pytest.raises(
        (ConfigError, EnvironmentMistaken), match=f"^spec.data.environment: 'own_faults:Own' .*{sentence}"
    ) as failed:
        world.step(np.zeros(2, dtype=np.int64))
    assert failed.value.exit_code == EXIT_NEVER_RETRY


@pytest.mark.parametrize("failure", [ConnectionError("the plant is away"), MemoryError(), RuntimeError("device lost")])
def test_what_may_pass_is_worth_another_attempt(own: types.ModuleType, failure: Exception) -> None:
    world = opened(own, Bare, answer=failure)
    world.reset()
    with pytest.raises(EnvironmentFailed, match=f"raised {type(failure).__name__}.*another attempt"):
        world.step(np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize(
    "changed",
    [
        {"reset": lambda self, seed=None: np.zeros(1)},
        {"reset": lambda self: (np.zeros(1), {})},
        {"observation_space": property(lambda self: self.nothing)},
        {"close": lambda self: self.nothing},
    ],
    ids=["no info", "no seed", "no space", "no way to close"],
)
def test_a_beginning_or_an_end_that_is_wrong_is_never_tried_again(own: types.ModuleType, changed) -> None:
    def begin_and_end() -> None:
        world = opened(own, Bare, **changed)
        world.reset()
        world.close()

    with pytest.raises((ConfigError, EnvironmentMistaken), match=r"^spec.data.environment: 'own_faults:Own'"):
        begin_and_end()


def test_each_episode_succeeds_by_its_own_word(own: types.ModuleType) -> None:
    world = opened(own, Bare, answer=(np.zeros(1), 1.0, True, False, {"is_success": np.bool_(True), "odd": object()}))
    world.reset()
    success = world.step(np.zeros(2, dtype=np.int64)).success
    assert success.tolist() == [True, True]


class Team:
    """A parallel environment that keeps its agents listed after their end."""

    possible_agents = ("a", "b")
    kinds: dict[str, Space[Any]] = {"a": ONE, "b": ONE}  # noqa: RUF012 - a plain dictionary is enough here
    ends = {"a": 10, "b": 10}  # noqa: RUF012
    late = False

    def __init__(self) -> None:
        self.agents = list(self.possible_agents)

    def observation_space(self, agent: str) -> Space:
        return self.kinds[agent]

    def action_space(self, agent: str) -> Space:
        return Discrete(2)

    def reset(self, seed: int | None = None, options=None):
        self.age = 0
        return {agent: np.ones(1) for agent in self.agents}, {}

    def step(self, actions: dict):
        assert set(actions) == set(self.agents), "one for each agent that is listed"
        self.age += 1
        flags = {agent: self.age >= end for agent, end in self.ends.items()}
        over, late = (dict.fromkeys(flags, False), flags) if self.late else (flags, dict.fromkeys(flags, False))
        return {agent: np.ones(1) for agent in flags}, dict.fromkeys(flags, 1.0), over, late, {}

    def close(self) -> None:
        """Holds nothing."""


@pytest.mark.parametrize("late", [False, True])
def test_a_team_whose_agents_stay_listed_ends_when_all_have_ended(own: types.ModuleType, late: bool) -> None:
    world = opened(own, Team, late=late, ends={"a": 4, "b": 10})
    world.reset()
    steps = [world.step(np.zeros((2, 2), dtype=np.int64)) for _ in range(20)]
    ended = [step.truncated if late else step.terminated for step in steps]
    assert [bool(flags.all()) for flags in ended] == ([False] * 9 + [True]) * 2
    assert not any((step.terminated if late else step.truncated).any() for step in steps)
    earned = np.stack([step.reward[0] for step in steps[:10]])
    assert earned.sum(axis=0).tolist() == [4.0, 10.0], "an agent that has left earns nothing"
    assert steps[4].successor[0, 0, 0] == 0.0, "and sees nothing"
    assert steps[9].observation[0, :, 0].tolist() == [1.0, 1.0], "in the next episode both are there again"


class LateTeam(Team):
    """One agent begins, the other one joins it at the third step and outlives it."""

    ends = {"a": 4, "b": 6}  # noqa: RUF012

    def reset(self, seed: int | None = None, options=None):
        self.agents = ["a"]
        return super().reset(seed, options)

    def step(self, actions: dict):
        result = super().step(actions)
        self.agents = [agent for agent, since in (("a", 0), ("b", 2)) if since <= self.age < self.ends[agent]]
        return result


def test_an_agent_that_joins_its_team_later_sees_earns_and_ends_the_episode(own: types.ModuleType) -> None:
    world = opened(own, LateTeam)
    world.reset()
    steps = [world.step(np.zeros((2, 2), dtype=np.int64)) for _ in range(12)]
    assert [bool(step.terminated.all()) for step in steps] == ([False] * 5 + [True]) * 2
    assert np.stack([step.reward[0] for step in steps[:6]]).sum(axis=0).tolist() == [4.0, 5.0]
    assert [float(step.successor[0, 1, 0]) for step in steps[:6]] == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_a_held_out_episode_of_such_a_team_has_its_own_length(own: types.ModuleType) -> None:
    world = opened(own, Team)
    returns, _ = play(lambda _: world, Uniform(2, 0), 0, 2, lambda _: None)
    assert returns.tolist() == [10.0, 10.0]


@pytest.mark.parametrize("base", [Bare, Team])
def test_an_episode_that_does_not_end_proves_nothing(own, base, monkeypatch):
    monkeypatch.setattr(sys.modules["learnloop_trainer.evaluation.held_out_episodes"], "MAX_STEPS", 200)
    endless = {"answer": (np.zeros(1), 1.0, False, False, {}), "ends": {"a": 10, "b": 10**9}}
    world = opened(own, base, **endless)
    message = r"spec.data.environment: 'own_faults:Own' does not end 2 of 2 held-out episodes within 200 steps; set"
    with pytest.raises(ConfigError, match=message):
        play(lambda _: world, Uniform(2, 0), 0, 2, lambda _: None)


@pytest.mark.parametrize(
    "spaces",
    [
        {"a": Discrete(3), "b": Discrete(1)},
        {"a": Discrete(3), "b": Discrete(3, start=1)},
        {"a": Dict({"x": ONE}), "b": Dict({"y": ONE})},
        {"a": Dict({"x": ONE}), "b": Dict({"x": Discrete(2)})},
        {"a": ONE, "b": Box(0, 1, (2,))},
        {"a": ONE, "b": Discrete(1)},
    ],
    ids=str,
)
def test_a_team_whose_agents_see_unlike_things_is_refused(own: types.ModuleType, spaces: dict[str, Space]) -> None:
    with pytest.raises(ConfigError, match="has agents with different observations; give all agents equal spaces"):
        opened(own, Team, kinds=spaces)


def test_bounds_of_what_is_seen_may_differ(own: types.ModuleType) -> None:
    assert opened(own, Team, kinds={"a": ONE, "b": Box(-5, 5, (1,))}).reset().shape == (2, 2, 3)
