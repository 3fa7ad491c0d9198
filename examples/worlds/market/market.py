"""A market of traders whose orders move the price: PettingZoo's parallel interface, in one file to copy.

It needs NumPy and Gymnasium; PettingZoo's base class is used where it is installed.
"""

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

try:
    from pettingzoo import ParallelEnv as Base
except ImportError:  # images of trainers and actors have none
    Base = object

Floats = NDArray[np.float64]
BACK, BANDS, STRENGTH, RECENT = 20, 20, 14, 5  # steps: of returns, Bollinger's bands, relative strength, volumes
FAST, SLOW, SIGNAL, WARM = 12, 26, 9, 60  # of MACD's means; of the history before an episode begins
RISK = 50  # own returns behind the value at risk and the Sharpe ratio
LOSS, GAIN, HOLDING = (0.01, 0.1), (0.02, 0.2), (1.0, 100.0)
RUIN = 0.1  # a trader with less than this share of the first cash leaves
PERSISTENCE, LARGEST_MOVE = 0.95, 0.2


class Market(Base):  # type: ignore[misc]
    """Traders, each with its own cash, trade one asset with a market maker.

    An action is four numbers in [-1, 1]: the position wanted, as a share of one's wealth (-1: all short); a stop loss
    of 1 to 10 %; a take profit of 2 to 20 %; and a holding period of 1 to 100 steps, before whose end only the two
    limits close the position. All orders of a step are filled at one price, which their sum moves: `impact` is the
    share by which it moves when everybody buys for all the first cash. Half of the move hits the orders themselves.

    Rewards are returns on one's wealth in percent. The info has what a RewardPolicy may weigh besides: `profit`,
    `sharpe`, `var` (the loss that 1 step in 20 exceeds), `drawdown`, `turnover` and `stops`.
    """

    metadata: dict[str, Any] = {"name": "market_v0", "render_modes": []}  # noqa: RUF012 - PettingZoo reads it
    render_mode = None

    def __init__(
        self,
        traders: int = 5,
        cash: float = 100_000.0,
        steps: int = 250,
        volatility: float = 0.01,
        trend: float = 0.004,
        impact: float = 0.05,
        fee: float = 0.0005,
        prices: Sequence[float] | None = None,
    ) -> None:
        """`trend`: deviation of the hidden drift of a step's return. `prices`: of the asset, in place of a random walk;
        an episode begins somewhere in them, so there must be `steps` + 60 or more."""
        self._moves = None if prices is None else np.diff(np.log(np.asarray(prices, dtype=np.float64)))
        if self._moves is not None and len(self._moves) < steps + WARM:
            raise ValueError(f"prices: are {len(self._moves) + 1}, must be more than {steps + WARM}")
        self.possible_agents = [f"trader_{number}" for number in range(traders)]
        self.agents: list[str] = []
        self.cash, self.steps, self.impact, self.fee = cash, steps, impact, fee
        self.volatility, self.trend = volatility, trend
        self._view = Box(-10.0, 10.0, (BACK + 5 + 2 * RECENT + 11,), np.float32)
        self._choice = Box(-1.0, 1.0, (4,), np.float32)
        self._random = np.random.default_rng()

    def observation_space(self, agent: str) -> Box:
        return self._view

    def action_space(self, agent: str) -> Box:
        return self._choice

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode after some steps without traders, so that every indicator has its history."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        count, self.agents, self.age = len(self.possible_agents), list(self.possible_agents), 0
        spare = 0 if self._moves is None else len(self._moves) - self.steps - WARM
        self._at = int(self._random.integers(spare + 1))
        self._drift = self.trend * self._random.standard_normal()
        self.price, self._means = 100.0, np.asarray([100.0, 100.0, 0.0])
        self._prices, self._flows = [self.price], [(0.0, 0.0)] * RECENT
        for _ in range(WARM):
            self._move(0.0, 0.0)
        self.money, self.shares = np.full(count, self.cash), np.zeros(count)
        self.wealth, self.peak = self.money.copy(), self.money.copy()
        self._entry, self._left = np.full(count, self.price), np.zeros(count)
        self._loss, self._gain = np.full(count, LOSS[1]), np.full(count, GAIN[1])
        self._returns: list[Floats] = []
        self._risks = np.zeros(count), np.zeros(count)
        return self._by_agent(self._observed()), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Take the actions of all traders that are left."""
        playing = np.asarray([agent in self.agents for agent in self.possible_agents])
        choice = np.zeros((len(playing), 4))
        for number in np.flatnonzero(playing):
            choice[number] = np.clip(actions[self.possible_agents[number]], -1.0, 1.0)
        profit = self._profit()
        stopped = (self.shares != 0) & ((profit < -self._loss) | (profit > self._gain))
        free = ~stopped & (self._left <= 0)
        target = np.where(free, choice[:, 0] * self.wealth / self.price, np.where(stopped, 0.0, self.shares))
        share = (choice[:, 1:] + 1.0) / 2.0
        self._loss = np.where(free, LOSS[0] + (LOSS[1] - LOSS[0]) * share[:, 0], self._loss)
        self._gain = np.where(free, GAIN[0] + (GAIN[1] - GAIN[0]) * share[:, 1], self._gain)
        holding = np.rint(HOLDING[0] + (HOLDING[1] - HOLDING[0]) * share[:, 2])
        self._left = np.where(target == 0, 0.0, np.where(free, holding, self._left) - 1.0)
        turnover = self._fill(target)
        before, self.wealth = self.wealth, self.money + self.shares * self.price
        growth = np.where(playing, self.wealth / before - 1.0, 0.0)
        self._returns = [*self._returns[1 - RISK :], growth]
        self.peak = np.maximum(self.peak, self.wealth)
        self.age += 1
        ruined = playing & (self.wealth < RUIN * self.cash)
        self.money[ruined], self.shares[ruined] = np.maximum(self.wealth[ruined], 1.0), 0.0
        rewards = self._by_agent(100.0 * growth)
        self._risks = sharpe, var = self._risk()
        parts = {"profit": 100.0 * growth, "sharpe": sharpe, "var": var, "drawdown": 1.0 - self.wealth / self.peak}
        parts |= {"turnover": turnover / before, "stops": stopped.astype(np.float64)}
        infos: dict[str, Any] = {agent: {} for agent in self.agents}
        for name, values in parts.items():
            for agent, value in self._by_agent(values).items():
                infos[agent][name] = float(value)
        observations, over = self._by_agent(self._observed()), self._by_agent(ruined)
        late = dict.fromkeys(self.agents, self.age >= self.steps)
        rest = {agent: bool(flag) for agent, flag in over.items()}
        self.agents = [] if self.age >= self.steps else [agent for agent in self.agents if not rest[agent]]
        return observations, {agent: float(value) for agent, value in rewards.items()}, rest, late, infos

    def state(self) -> NDArray[np.float32]:
        """Everybody's observations, for a central critic."""
        return self._observed().reshape(-1)

    def _profit(self) -> Floats:
        """Of the open positions, as a share of the price at which they were opened."""
        return np.asarray(np.sign(self.shares) * (self.price / self._entry - 1.0))

    def _fill(self, target: Floats) -> Floats:
        """Trade until each has `target` shares, and move the price; returns the money that each one traded."""
        order = target - self.shares
        flow = float(order.sum()) * self.price / (len(order) * self.cash)
        push = float(np.clip(self.impact * flow, -LARGEST_MOVE, LARGEST_MOVE))
        filled = self.price * (1.0 + push / 2.0)
        turnover = np.abs(order) * filled
        self.money = self.money - order * filled - self.fee * turnover
        opened = np.sign(target) != np.sign(self.shares)
        added = ~opened & (np.abs(target) > np.abs(self.shares))
        mean = np.where(added, (self.shares * self._entry + order * filled) / np.where(target == 0, 1.0, target), 0.0)
        self._entry = np.where(opened, filled, np.where(added, mean, self._entry))
        self.shares = target
        self._flows.append((flow, float(turnover.sum()) / (len(order) * self.cash)))
        self._move(math.log1p(push), self._drift)
        return np.asarray(turnover)

    def _move(self, push: float, drift: float) -> None:
        """The price moves by its orders and by the world outside."""
        if self._moves is None:
            outside = drift + self.volatility * self._random.standard_normal()
            fresh = math.sqrt(1.0 - PERSISTENCE**2) * self.trend * self._random.standard_normal()
            self._drift = PERSISTENCE * self._drift + fresh
        else:
            outside = self._moves[self._at]
            self._at += 1
        self.price *= math.exp(push + outside)
        self._prices.append(self.price)
        fast, slow, signal = self._means
        fast, slow = (mean + 2.0 / (span + 1) * (self.price - mean) for mean, span in ((fast, FAST), (slow, SLOW)))
        self._means = np.asarray([fast, slow, signal + 2.0 / (SIGNAL + 1) * (fast - slow - signal)])

    def _risk(self) -> tuple[Floats, Floats]:
        """Of each trader's newest returns: the Sharpe ratio of a step, and the value at risk at 95 %."""
        if len(self._returns) < 2:
            return np.zeros(len(self.shares)), np.zeros(len(self.shares))
        past = np.sort(np.stack(self._returns), axis=0)
        sharpe = past.mean(axis=0) / np.maximum(past.std(axis=0), 1e-6)
        below, rest = divmod(0.05 * (len(past) - 1), 1.0)  # np.quantile's default, which takes four times as long
        low = past[int(below)]
        return sharpe, np.maximum(-(low + rest * (past[int(below) + 1] - low)), 0.0)

    def _observed(self) -> NDArray[np.float32]:
        """Rows [traders, numbers]: the market's numbers, which are the same for all, and one's own."""
        prices = np.asarray(self._prices[-WARM:])
        moves = np.diff(np.log(prices)) / self.volatility
        fast, slow, signal = self._means
        ups = np.maximum(moves[-STRENGTH:], 0.0).sum() / max(np.abs(moves[-STRENGTH:]).sum(), 1e-9)
        band, deviation = prices[-BANDS:].mean(), max(prices[-BANDS:].std(), 1e-9)
        unit = self.price * self.volatility
        shared = [(fast - slow) / unit, (fast - slow - signal) / unit, 2.0 * ups - 1.0]
        shared += [(self.price - band) / (2.0 * deviation), 4.0 * deviation / unit / 10.0]
        market = np.concatenate((moves[-BACK:], shared, np.asarray(self._flows[-RECENT:]).reshape(-1)))
        sharpe, var = self._risks
        position = self.shares * self.price / np.maximum(self.wealth, 1.0)
        others = (position.sum() - position) / max(1, len(position) - 1)
        own = [position, 10.0 * self._profit() * (self.shares != 0), self._left / HOLDING[1], 10.0 * self._loss]
        own += [5.0 * self._gain, self.wealth / self.cash - 1.0, 1.0 - self.wealth / self.peak, sharpe]
        own += [var / self.volatility, others, np.full(len(position), 1.0 - self.age / self.steps)]
        rows = np.concatenate((np.tile(market, (len(position), 1)), np.stack(own, axis=1)), axis=1)
        return np.clip(rows, -10.0, 10.0).astype(np.float32)

    def _by_agent(self, values: NDArray[Any]) -> dict[str, Any]:
        numbers = {agent: number for number, agent in enumerate(self.possible_agents)}
        return {agent: values[numbers[agent]] for agent in self.agents}


class Trader(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One trader among others that stay idle, for learners of a single agent."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it as a plain dictionary

    def __init__(self, **arguments: Any) -> None:
        """Arguments are those of Market."""
        self.market = Market(**arguments)
        self._own, *self._others = self.market.possible_agents
        self.observation_space = self.market.observation_space(self._own)
        self.action_space = self.market.action_space(self._own)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        observations, _ = self.market.reset(seed=int(self.np_random.integers(2**31)))
        return observations[self._own], {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        idle = dict.fromkeys(self._others, np.zeros(4))
        observations, rewards, over, late, infos = self.market.step({self._own: action, **idle})
        own = self._own
        return observations[own], rewards[own], over[own], late[own], infos[own]
