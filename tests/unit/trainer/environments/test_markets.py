"""Levels of trading are levels: what a fixed policy earns falls, and doing nothing earns nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from as_gymnasium import SIMULATIONS
from learnloop_environments import Conditions, make
from learnloop_environments.randomness import Split

Policy = Callable[[NDArray[Any]], NDArray[Any]]


def mean_return(name: str, policy: Policy, level: str | None = None, episodes: int = 256, **fixed: float) -> float:
    """Of one episode of each environment; `fixed`: physics that are given."""
    randomise = tuple((name, value, value) for name, value in fixed.items())
    world = make(name, Split.TRAINING, 3, range(episodes), Conditions(level, randomise))
    observation, total = world.reset(), np.zeros(episodes)
    for _ in range(int(SIMULATIONS[name].PARAMETERS["max_steps"])):
        step = world.step(policy(observation))
        observation, total = step.observation, total + step.reward
    return float(total.mean())


def idle(observations: NDArray) -> NDArray:
    return np.broadcast_to(np.asarray([0.0, 1.0, 1.0]), (len(observations), 3))


def following(share: float) -> Policy:
    """A share of the trend as it is seen, blurred, approached by a tenth in every step; with wide corridors."""

    def policy(observations: NDArray) -> NDArray:
        position = np.clip(0.9 * observations[:, 31] + 0.1 * share * observations[:, 30], -1.0, 1.0)
        return np.stack((position, np.ones(len(observations)), np.ones(len(observations))), axis=1)

    return policy


def random(numbers: int) -> Policy:
    draws = np.random.default_rng(0)
    return lambda observations: draws.uniform(-1.0, 1.0, (len(observations), numbers))


@pytest.mark.parametrize("level", ["easy", "expert"])
def test_who_holds_no_position_earns_nothing(level: str) -> None:
    assert mean_return("markets:Trading", idle, level) == pytest.approx(0.0, abs=1e-6)


def test_volatility_changes_what_a_trader_earns() -> None:
    """The same episodes, the same policy: only the volatility differs."""
    calm, wild = (mean_return("markets:Trading", following(0.3), volatility=value) for value in (0.1, 0.8))
    assert calm > wild + 0.5


def test_who_follows_the_trend_carefully_earns_something_in_the_wildest_market() -> None:
    assert mean_return("markets:Trading", following(0.3), "expert", 1024) > 0.3


@pytest.mark.parametrize(
    ("name", "policy"),
    [("markets:Trading", following(0.5)), ("markets:Trading", random(3))],
    ids=["a trend follower", "a random trader"],
)
def test_a_fixed_policy_earns_less_at_every_harder_level(name: str, policy: Policy) -> None:
    returns = [mean_return(name, policy, level.name) for level in SIMULATIONS[name].LEVELS]
    assert returns == sorted(returns, reverse=True)
    assert returns[0] > returns[-1] + 0.5, returns
