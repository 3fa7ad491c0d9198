"""The specification's environments: fair interfaces, exact state, and worlds that do what their files say."""

import sys
import types
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest

from as_gymnasium import SIMULATIONS, Parallel
from learnloop_environments import Conditions, Team, make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_environments.spaces import VectorEnvironment, agents
from learnloop_environments.wrappers import innermost
from motion import LENGTHS, hand
from teams import Cooperative

ONE_START = {"grids:DeepSea", "grids:KeyDoor", "motion:PointGoals", "teams:TwoStep"}  # every episode begins alike


def opened(name: str, count: int = 6, split: Split = Split.TRAINING, **conditions) -> VectorEnvironment:
    world: VectorEnvironment = innermost(make(name, split, 3, range(count), Conditions(**conditions)))
    return world


def random_actions(environment: VectorEnvironment, random: np.random.Generator) -> np.ndarray:
    shape = (len(environment.members), agents(environment))[: 2 if isinstance(environment, Team) else 1]
    if environment.bounds is None:
        return random.integers(0, environment.actions, shape)
    return random.uniform(-1.5, 1.5, (*shape, environment.actions)).astype(np.float32)


@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_restored_simulation_repeats_exactly_what_the_saved_one_did(name: str) -> None:
    random, first, second = np.random.default_rng(0), opened(name), opened(name)
    for _ in range(30):
        first.step(random_actions(first, random))
    state = first.state()
    second.restore(state)
    for _ in range(220):
        action = random_actions(first, random)
        one, two = first.step(action), second.step(action)
        assert np.array_equal(one.observation, two.observation)
        assert np.array_equal(one.reward, two.reward)
    assert (np.asarray(first.state()["episode"]) > 0).any(), "no episode ended: the test saw no reset"


@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_simulation_is_the_same_whichever_rank_owns_it(name: str) -> None:
    together, apart = opened(name), make(name, Split.TRAINING, 3, range(4, 6))
    random = np.random.default_rng(1)
    for _ in range(40):
        action = random_actions(together, random)
        assert np.array_equal(together.step(action).observation[4:], apart.step(action[4:]).observation)


@pytest.mark.parametrize("name", sorted(set(SIMULATIONS) - ONE_START))
def test_held_out_episodes_begin_otherwise_than_training_episodes(name: str) -> None:
    worlds = [opened(name, split=split) for split in Split]
    action = random_actions(worlds[0], np.random.default_rng(0))
    training, held_out = (world.step(action).successor for world in worlds)  # a market begins without any history
    assert not np.array_equal(training, held_out)
    assert len({row.tobytes() for row in training}) == len(training)


@pytest.mark.parametrize("name", SIMULATIONS)
def test_every_level_can_be_played_and_a_later_one_is_no_copy_of_the_first(name: str) -> None:
    levels = SIMULATIONS[name].LEVELS
    begun = [opened(name, level=level.name).state() for level in levels]
    for one, other in pairwise(begun):
        assert any(not np.array_equal(one[key], other[key]) for key in one if key.startswith("parameter."))


def test_the_native_vector_environment_is_the_single_one_many_times() -> None:
    many = gymnasium.make_vec("learnloop/Navigation-v1", num_envs=3, vectorization_mode="vector_entry_point")
    observation, _ = many.reset(seed=4)
    again, _ = many.reset(seed=4)
    assert np.array_equal(observation, again)
    assert observation.shape == (3, 23)
    for _ in range(301):
        observation, _, _, truncated, info = many.step(np.zeros((3, 2), dtype=np.float32))
        if truncated.all():
            break
    assert truncated.all()
    assert info["final_obs"][0].shape == (23,)
    assert not np.array_equal(info["final_obs"][0], observation[0])


def test_randomised_physics_change_with_each_episode_and_stay_within_their_range() -> None:
    environment = opened("motion:Manipulation", 64, randomise=(("gain", 0.5, 1.5), ("tolerance", 5.0, 5.0)))
    first = environment.state()["parameter.gain"]
    environment.step(np.zeros((64, 7)))  # a tolerance of 5 m: every episode ends immediately
    second = environment.state()["parameter.gain"]
    assert ((first >= 0.5) & (first <= 1.5)).all()
    assert first.std() > 0.2
    assert not (first == second).any()


@pytest.mark.parametrize(
    ("name", "conditions", "problem"),
    [
        (
            "motion:Navigation",
            {"level": "heroic"},
            r"spec.data.level: 'heroic'.*beginner, intermediate, advanced, expert",
        ),
        ("teams:TwoStep", {"level": "easy"}, "has one level only"),
        (
            "motion:Navigation",
            {"randomise": (("mass", 0.0, 1.0),)},
            r"spec.data.randomise: 'mass'.*choose one of accel",
        ),
        ("teams:Cooperative", {"credit": "luck"}, r"spec.data.credit: 'luck'.*team, individual, difference"),
        ("CartPole-v1", {"level": "expert"}, "has no levels"),
    ],
)
def test_conditions_an_environment_cannot_meet_are_refused(name: str, conditions, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        opened(name, **conditions)


def test_the_stretched_arm_reaches_as_far_as_its_links_and_a_bend_turns_it_down() -> None:
    straight = np.zeros((1, 7))
    assert hand(straight)[0] == pytest.approx([0, 0, LENGTHS.sum()])
    bent = straight.copy()
    bent[0, 1] = np.pi / 2
    assert hand(bent)[0] == pytest.approx([LENGTHS[1:].sum(), 0, LENGTHS[0]])
    bent[0, 0] = np.pi / 2
    assert hand(bent)[0] == pytest.approx([0, LENGTHS[1:].sum(), LENGTHS[0]])


def test_the_two_step_game_pays_as_the_papers_table_says() -> None:
    for first, second, worth in ((0, (0, 1), 7), (1, (0, 0), 0), (1, (0, 1), 1), (1, (1, 1), 8)):
        environment = opened("teams:TwoStep", 1)
        assert environment.step(np.array([[first, 0]])).reward.tolist() == [[0, 0]]
        step = environment.step(np.array([second]))
        assert step.reward.tolist() == [[worth, worth]]
        assert step.terminated.all()


def test_difference_rewards_give_an_agent_only_what_the_team_owes_to_it() -> None:
    environment = opened("teams:Cooperative", 1, credit="difference")
    assert isinstance(environment, Cooperative)
    environment.body["goal"][0] = [[0, 0], [0.8, 0], [0, 0.8]]
    environment.body["place"][0] = [[0, 0], [0.8, 0], [-1, -1]]  # the third stands far from everything
    own = environment.step(np.zeros((1, 3), dtype=np.int64)).reward[0]
    assert own[2] == pytest.approx(0, abs=1e-6)
    assert (own[:2] > 0.2).all()


def test_an_explorer_is_told_which_moves_are_free() -> None:
    environment = opened("grids:Exploration", 64)
    free = environment.reset()[:, -4:] == 1
    for move in range(4):
        step = opened("grids:Exploration", 64).step(np.full(64, move))
        assert np.array_equal(step.reward <= -0.5 + 0.01, ~free[:, move])


def test_one_who_follows_the_trend_profits_from_trading() -> None:
    environment = opened("markets:Trading", 64)
    observation, earned = environment.reset(), np.zeros(64)
    for _ in range(199):
        calm = np.full(64, 1.0)
        position = np.clip(observation[:, 26] * 1.5, -1, 1)  # mean of the last 12 returns
        earned += environment.step(np.stack((position, calm, calm), axis=1)).reward
        observation = environment._observe()
    state = environment.state()
    assert state["body.wealth"].mean() > 0


class Counter(gymnasium.Env[Any, Any]):
    """A user's own environment: name the step's number modulo 2."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options=None):
        super().reset(seed=seed)
        self._age = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: int):
        right, self._age = action == self._age % 2, self._age + 1
        observation = np.full(1, self._age, dtype=np.float32)
        return observation, float(right), self._age == 4, False, {"is_success": bool(right)}


def own_team() -> Parallel:
    return Parallel("teams:Cooperative")


@pytest.fixture
def users_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("users_world")
    module.Counter, module.own_team, module.Native, module.number = Counter, own_team, Cooperative, 7
    monkeypatch.setitem(sys.modules, "users_world", module)


@pytest.mark.usefixtures("users_module")
def test_a_users_gymnasium_environment_is_found_by_module_and_name() -> None:
    environment = make("users_world:Counter", Split.TRAINING, 0, range(2))
    environment.reset()
    steps = [environment.step(np.array([age % 2, 0])) for age in range(4)]
    assert [step.reward.tolist() for step in steps] == [[1, 1], [1, 0], [1, 1], [1, 0]]
    assert steps[3].terminated.all()
    assert steps[3].success.tolist() == [True, False]
    assert steps[3].observation.ravel().tolist() == [0, 0]
    assert steps[3].successor.ravel().tolist() == [4, 4]


@pytest.mark.usefixtures("users_module")
def test_a_users_team_and_a_users_native_simulation_are_found_too() -> None:
    team = make("users_world:own_team", Split.TRAINING, 0, range(2))
    assert agents(team) == 3
    assert team.reset().shape == (2, 3, 19 + 3)
    for _ in range(25):
        step = team.step(np.zeros((2, 3), dtype=np.int64))
    assert step.truncated.all()
    assert step.reward.shape == (2, 3)
    assert not np.array_equal(step.observation, step.successor)
    assert isinstance(innermost(make("users_world:Native", Split.TRAINING, 0, range(2))), Cooperative)


@pytest.mark.usefixtures("users_module")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere_at_all:Env", "cannot be imported"),
        ("users_world:Missing", "has no Missing"),
        ("users_world:number", "neither a class nor a function"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_refused(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"spec.data.environment: '{name}'.*{problem}.*;"):
        make(name, Split.TRAINING, 0, range(2))
