"""The supply chain's levels are levels, and its suppliers, freight, lead times and demand do what its README says."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learnloop_environments import Conditions
from learnloop_environments.randomness import Split
from supply_chain import LARGEST, LEAD, SUPPLIERS, SupplyChain, base_stock

LEVELS = [level.name for level in SupplyChain.LEVELS]
FAR, NEAR = [1.0, -1, -1, -1, 0, 0], [-1.0, -1, 1, -1, 0, 0]
EPISODES = 300
Policy = Callable[[NDArray[Any]], NDArray[Any]]


def opened(count: int, **parameters: float) -> SupplyChain:
    fixed = tuple((name, value, value) for name, value in parameters.items())
    return SupplyChain(Split.TRAINING, 3, range(count), Conditions(randomise=fixed))


def returns(policy: Policy, level: str) -> NDArray[Any]:
    """Of so many episodes."""
    world = SupplyChain(Split.TRAINING, 3, range(EPISODES), Conditions(level))
    observation, total = world.reset(), np.zeros(EPISODES)
    for _ in range(int(SupplyChain.PARAMETERS["max_steps"])):
        step = world.step(policy(observation))
        observation, total = step.observation, total + step.reward
    return total


def random() -> Policy:
    draws = np.random.default_rng(0)
    return lambda observations: draws.uniform(-1.0, 1.0, (len(observations), SUPPLIERS + 3))


def least(one: NDArray[Any], other: NDArray[Any]) -> float:
    """By which the mean of `one` is greater, at the lower end of its 95 % interval."""
    deviation = np.hypot(one.std(), other.std()) / np.sqrt(EPISODES)
    return float(one.mean() - other.mean() - 1.96 * deviation)


@pytest.mark.parametrize("policy", [random(), lambda rows: base_stock(rows, 6.0)], ids=["random", "base stock"])
def test_every_level_is_harder_than_the_one_before_for_a_policy_that_learns_nothing(policy: Policy) -> None:
    easy, medium, hard = (returns(policy, level) for level in LEVELS)
    assert least(easy, medium) > 0.3
    assert least(medium, hard) > 0.3


@pytest.mark.parametrize("level", LEVELS)
def test_a_base_stock_does_better_than_chance_and_than_nothing(level: str) -> None:
    stocked = returns(lambda rows: base_stock(rows, 6.0), level)
    assert least(stocked, returns(random(), level)) > 4.0
    assert least(stocked, returns(lambda rows: -np.ones((len(rows), SUPPLIERS + 3)), level)) > 30.0


def test_no_supplier_sends_more_than_its_capacity_and_none_at_all_during_an_outage() -> None:
    world = opened(200)
    state = world.state()
    state["body.outage"][:100] = 5
    world.restore(state)
    capacity = world._capacities()
    assert (capacity[:100] == 0).all()
    assert (capacity[100:] >= LARGEST / 2).all()
    assert (capacity[100:] <= LARGEST).all()
    world.step(np.tile(FAR, (200, 1)))
    assert world.state()["body.coming"].sum(axis=(1, 2)) == pytest.approx(capacity[:, 0])


def test_lead_times_vary_and_express_halves_them() -> None:
    world = opened(1000)
    state = world.state()
    state["body.jam"][500:] = 3
    world.restore(state)
    world.step(np.tile(FAR, (1000, 1)))
    slots = world.state()["body.coming"].sum(axis=1).argmax(axis=1) + 1
    assert set(slots[:500]) == {LEAD[0], LEAD[0] + 1}
    assert set(slots[500:]) == {LEAD[0] + 2, LEAD[0] + 3}, "the ports are congested"
    world.restore(state)
    world.step(np.tile([1.0, -1, -1, 1, 0, 0], (1000, 1)))
    assert set(world.state()["body.coming"].sum(axis=1).argmax(axis=1)[:500] + 1) == {2, 3}


def test_freight_rates_wander_and_congestion_doubles_those_by_sea() -> None:
    world = opened(200)
    first = world._rates()
    for _ in range(20):
        world.step(np.zeros((200, SUPPLIERS + 3)))
    assert np.log(world._rates() / first).std(axis=0).min() > 0.2
    state = world.state()
    before = world._rates()
    state["body.jam"] = np.where(state["body.jam"] == 0, 3.0, 0.0)
    world.restore(state)
    ratio = world._rates() / before
    assert set(np.round(ratio[:, :2].ravel(), 6)) == {2.0, 0.5}
    assert ratio[:, 2] == pytest.approx(1.0)


def test_more_stores_make_demand_less_steady_at_the_same_mean() -> None:
    spread = []
    for stores in (6.0, 30.0):
        world = opened(256, complexity=stores, noise=0.1, disruptions=0.0)
        demand = []
        for _ in range(59):
            world.step(np.tile(NEAR, (256, 1)))
            demand.append(world.state()["body.demand"].sum(axis=1))
        spread.append(float(np.std(demand, axis=0).mean()))
        assert np.mean(demand) == pytest.approx(20.0, rel=0.05)
    assert spread[1] > spread[0]


def test_a_shock_raises_demand_for_some_periods() -> None:
    calm, hit = opened(100, disruptions=0.0), opened(100, disruptions=0.0)
    state = hit.state()
    state["body.surge"][:] = 2
    hit.restore(state)
    ratios = []
    for _ in range(4):
        for world in (calm, hit):
            world.step(np.tile(NEAR, (100, 1)))
        ratios.append(hit.state()["body.demand"].mean() / calm.state()["body.demand"].mean())
    assert ratios[:2] == pytest.approx([1.5, 1.5], abs=0.1)
    assert ratios[2:] == pytest.approx([1.0, 1.0])


def test_its_costs_and_stockouts_are_values_for_a_reward_policy() -> None:
    step = opened(2).step(np.zeros((2, SUPPLIERS + 3)))
    assert set(step.values) == {"cost", "service", "turnover", "stockouts"}
