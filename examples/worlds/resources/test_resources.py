"""Resources keep to PettingZoo's and Gymnasium's interfaces, at any size, and pay what the README says."""

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from learnloop_environments import make
from learnloop_environments.randomness import Split
from resources import Allocator, Resources, by_need, gini


def mean_reward(world: Resources, how: str, episodes: int = 60) -> float:
    """Of the first consumer, which is always there, a step."""
    draws, total = np.random.default_rng(0), 0.0
    for seed in range(episodes):
        world.reset(seed=seed)
        while world.agents:
            shape = (len(world.agents), world.resources)
            claims: dict[str, Any] = {
                "random": lambda shape=shape: dict(zip(world.agents, draws.uniform(-1, 1, shape), strict=True)),
                "equal": lambda shape=shape: dict(zip(world.agents, np.zeros(shape), strict=True)),
                "by need": lambda: by_need(world),
            }[how]()
            total += world.step(claims)[1]["consumer_0"]
    return total / episodes / world.steps


@pytest.mark.parametrize(("consumers", "resources"), [(4, 3), (1, 1), (12, 5), (2, 7)])
def test_pettingzoo_and_gymnasium_find_no_fault_at_any_size(consumers: int, resources: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(Resources(consumers, resources), num_cycles=200)
        parallel_seed_test(lambda: Resources(consumers, resources))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about infinite observation bounds
        check_env(Allocator(consumers=consumers, resources=resources), skip_render_check=True)


def test_consumers_come_and_leave_and_the_others_share_what_there_is() -> None:
    world = Resources(10, 2, movement=1.0)
    world.reset(seed=1)
    there = []
    while world.agents:
        there.append(len(world.agents))
        present = np.isin(world.possible_agents, world.agents)
        world.step({agent: np.zeros(2) for agent in world.agents})
        assert world.got.sum(axis=0) == pytest.approx(world.available)
        assert world.got[present] == pytest.approx(np.tile(world.available / present.sum(), (present.sum(), 1)))
    assert there[0] == 1
    assert max(there) == 10
    assert there[-1] < 5


def test_gini_is_zero_for_equal_shares_and_largest_when_one_has_all() -> None:
    assert [gini(np.asarray(one, float)) for one in ([2, 2, 2, 2], [0, 0, 0, 5])] == pytest.approx([0, 0.75])


def test_claims_by_need_do_better_than_equal_ones_and_these_better_than_chance() -> None:
    random, equal, needed = (mean_reward(Resources(), how) for how in ("random", "equal", "by need"))
    assert needed > equal + 0.01
    assert equal > random + 0.05


def test_the_difference_is_what_the_team_owes_to_a_consumer() -> None:
    team, difference = Resources(movement=0.0), Resources(movement=0.0, credit="difference")
    claims = {agent: np.asarray(claim) for agent, claim in zip(team.possible_agents, np.eye(4, 3), strict=True)}
    for world in (team, difference):
        world.reset(seed=5)
    worth = team.step(claims)[1]["consumer_0"]
    own = difference.step(claims)[1]
    without = np.isin(team.possible_agents, ["consumer_1", "consumer_2", "consumer_3"])
    difference.reset(seed=5)
    shares = difference._shares(np.eye(4, 3), without) * difference.available
    assert shares[0].sum() == 0
    assert own["consumer_0"] == pytest.approx(worth - difference._worth(shares, np.ones(4, bool))[0])
    assert len({round(value, 6) for value in own.values()}) == 4, "each is owed something else"


def test_the_individual_credit_is_the_share_of_ones_own_needs() -> None:
    world = Resources(2, 1, movement=0.0, scarcity=0.5, credit="individual")
    world.reset(seed=0)
    need = world.need.copy()
    earned = world.step({"consumer_0": np.ones(1), "consumer_1": -np.ones(1)})[1]
    assert earned["consumer_0"] == pytest.approx(min(1.0, world.got[0, 0] / need[0, 0]))
    assert earned["consumer_1"] < 0.01


@pytest.mark.parametrize(("given", "problem"), [({"credit": "luck"}, "team, individual"), ({"resources": 0}, "1 or")])
def test_arguments_that_make_no_sense_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Resources(**given)


def test_learnloop_plays_it_as_a_team_and_as_one() -> None:
    team, one = (make(f"resources:{name}", Split.TRAINING, 0, range(2)) for name in ("Resources", "Allocator"))
    assert (team.agents, team.actions, one.actions) == (4, 3, 12)  # type: ignore[attr-defined]
    for world, shape in ((team, (2, 4, 3)), (one, (2, 12))):
        world.reset()
        for _ in range(60):
            step = world.step(np.zeros(shape, dtype=np.float32))
        assert {"fairness", "efficiency", "met"} <= set(step.values)
