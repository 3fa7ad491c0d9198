"""The market keeps to PettingZoo's interface, and to what its documentation says."""

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from learnloop_environments import make
from learnloop_environments.randomness import Split
from market import Market, Trader

IDLE, BUY, SELL = ([share, 1.0, 1.0, 1.0] for share in (0.0, 1.0, -1.0))


def play(market: Market, actions: dict[str, list[float]], steps: int) -> float:
    """The price after so many steps of the same actions, from the same beginning."""
    market.reset(seed=7)
    for _ in range(steps):
        market.step({agent: np.float32(actions.get(agent, IDLE)) for agent in market.agents})
    return market.price


def test_pettingzoo_finds_no_fault() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(Market(steps=60), num_cycles=200)
        parallel_api_test(Market(volatility=0.3, impact=1.0), num_cycles=500)  # some are ruined and leave
        parallel_seed_test(lambda: Market(steps=60))


def test_orders_move_the_price_and_who_buys_pays_for_it() -> None:
    market = Market(volatility=1e-9, trend=0.0, fee=0.0)
    everybody = dict.fromkeys(market.possible_agents, BUY)
    assert play(market, everybody, 1) == pytest.approx(105.0)
    assert market.money == pytest.approx([100_000 - 1000 * 102.5] * 5)
    assert play(market, dict.fromkeys(market.possible_agents, SELL), 1) == pytest.approx(95.0)
    assert play(market, {"trader_0": BUY}, 1) == pytest.approx(101.0), "a fifth of the orders, a fifth of the move"


def test_an_idle_trader_earns_nothing() -> None:
    market = Market()
    play(market, {"trader_0": BUY}, 100)
    assert market.wealth[1:].tolist() == [100_000.0] * 4
    assert market.wealth[0] != 100_000.0


def test_a_position_is_held_for_its_time_unless_a_limit_closes_it() -> None:
    market = Market(volatility=1e-9, trend=0.0, impact=0.0)
    market.reset(seed=0)
    for holding, steps in ((1.0, 100), (-1.0, 1), (0.0, 50)):
        market.step({agent: np.float32([1.0, 1.0, 1.0, holding]) for agent in market.agents})
        held = 0
        while market.shares[0] > 0:
            market.step({agent: np.float32(IDLE) for agent in market.agents})
            held += 1
        assert held == steps
    falling = 100.0 * np.exp(-0.03 * np.arange(200))
    market = Market(steps=100, prices=falling.tolist(), impact=0.0)
    market.reset(seed=0)
    stops = []
    for _ in range(5):
        choice = {agent: np.float32([1.0, -0.2, 1.0, 1.0]) for agent in market.agents}  # a stop loss at 4.6 %
        stops.append(market.step(choice)[-1]["trader_0"]["stops"])
    assert stops == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_learnloop_plays_it_as_a_team() -> None:
    world = make("market:Market", Split.TRAINING, 0, range(2))
    assert (world.agents, world.actions) == (5, 4)  # type: ignore[attr-defined]
    world.reset()
    step = world.step(np.ones((2, 5, 4), dtype=np.float32))
    assert step.reward.shape == (2, 5)
    assert {"sharpe", "var", "drawdown", "turnover"} <= set(step.values)


def test_the_value_at_risk_is_the_twentieth_part_of_ones_returns() -> None:
    market = Market()
    play(market, {"trader_0": BUY}, 30)
    returns = np.stack(market._returns)
    sharpe, var = market._risk()
    assert var == pytest.approx(np.maximum(-np.quantile(returns, 0.05, axis=0), 0.0))
    assert sharpe[0] == pytest.approx(returns[:, 0].mean() / returns[:, 0].std())


def test_one_trader_alone_meets_the_market_of_idle_others() -> None:
    check_env(Trader(), skip_render_check=True)
    alone = Trader()
    alone.reset(seed=3)
    for _ in range(40):
        alone.step(np.float32(BUY))
    assert alone.market.wealth[0] != 100_000.0
    assert alone.market.wealth[1:].tolist() == [100_000.0] * 4
