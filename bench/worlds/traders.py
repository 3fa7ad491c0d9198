"""Does a trained trader beat the MACD rule? Alone among idle ones; the last line printed is one JSON object.

usage: python -m bench.worlds.traders own|sb3 STEPS SEED
"""

import json
import sys

import numpy as np
from numpy.typing import NDArray

from bench.worlds import ours
from learnloop_environments.simulation import NOMINAL
from learnloop_trainer.evaluation import Policy
from learnloop_trainer.floating_point import settle
from market import Trader

EPISODES, FIRST = 200, 1_000_000  # held-out seeds begin here
MACD, CROSSING = 20, 21  # in a trader's view; less its signal
DISCOUNT = 0.9  # the drift has a memory of 20 steps
ATTEMPTS = {
    "own": {
        "normaliseObservations": True,
        "discount": DISCOUNT,
        "learningRate": 1e-3,
        "entropyCoefficient": 0.0,
        "environments": 32,
        "horizon": 64,
    },
    "sb3": {
        "normalize": True,
        "gamma": DISCOUNT,
        "learning_rate": 1e-3,
        "n_envs": 32,
        "n_steps": 64,
        "batch_size": 256,
        "n_epochs": 6,
    },
}


class Rule:
    """All long or all short for a step at a time, by the sign of one number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        position = np.sign(observation[:, self._number])
        return np.stack((position, *np.ones((2, len(position))), -np.ones(len(position))), axis=1, dtype=np.float32)


def gains(policy: Policy) -> NDArray[np.float64]:
    """Percent of the first wealth, of each held-out episode."""
    trader, earned = Trader(), []
    for number in range(EPISODES):
        observation, _ = trader.reset(seed=FIRST + number)
        over = False
        while not over:
            observation, _, ruined, late, _ = trader.step(policy.act(observation[None])[0])
            over = ruined or late
        earned.append(100.0 * (trader.market.wealth[0] / trader.market.cash - 1.0))
    return np.asarray(earned)


def summary(values: NDArray[np.float64]) -> list[float]:
    """The mean and its 95 % interval."""
    half = 1.96 * values.std() / np.sqrt(len(values))
    return [round(float(number), 1) for number in (values.mean(), values.mean() - half, values.mean() + half)]


def main() -> None:
    engine, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    settle(1)
    task = {"environment": "market:Trader", "engine": engine, "algorithm": "ppo", "steps": steps}
    task["ours"] = ATTEMPTS[engine]
    policy, _, _ = (ours.by_sb3 if engine == "sb3" else ours.by_own)(task, seed, NOMINAL)
    trained, macd, crossing = gains(policy), gains(Rule(MACD)), gains(Rule(CROSSING))
    figures = {"trained": summary(trained), "macd": summary(macd), "crossing": summary(crossing)}
    figures |= {"trained_minus_macd": summary(trained - macd), "trained_minus_crossing": summary(trained - crossing)}
    print(json.dumps({"engine": engine, "steps": steps, "seed": seed} | figures))


if __name__ == "__main__":
    main()
