"""N consumers share M resources: PettingZoo's parallel interface, and Gymnasium's for one that decides for all.

It needs NumPy and Gymnasium; PettingZoo's base class is used where it is installed.
"""

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
SHARPNESS, CARRIED, MOST = 3.0, 0.3, 3.0  # of claims; share of an unmet need that comes back; of a need
FAIRNESS, EFFICIENCY = 0.3, 0.7  # the specification's weights
CREDITS = ("team", "individual", "difference")


def gini(amounts: Floats) -> float:
    """Gini coefficient of non-negative amounts (Gini, 1912): 0 all equal, (k - 1) / k one has all."""
    ordered, count = np.sort(amounts), len(amounts)
    weights = 2.0 * np.arange(1, count + 1) - count - 1
    return float((ordered * weights).sum() / (count * max(float(ordered.sum()), 1e-12)))


class Resources(Base):  # type: ignore[misc]
    """Consumers claim shares of resources, each by its needs and its priority; some come later, some leave.

    An action is one number in [-1, 1] for each resource: how much of it is claimed. A softmax over the consumers that
    are there turns claims into shares, so all of a resource is always given away. Needs are drawn at each step
    for each resource, and a part of what was not met comes back. The team's reward is the specification's,

        0.3 (1 - Gini(allocations)) + 0.7 sum_i w_i min(allocation_i, need_i) / sum_i w_i need_i

    with the priorities as weights w, over the consumers that are there. `credit` says what each one earns: `team`, all
    the same; `individual`, the share of its own needs that is met; `difference`, the team's reward minus what it would
    be had this consumer claimed nothing and got nothing (Wolpert & Tumer, 2001).
    """

    metadata: dict[str, Any] = {"name": "resources_v0", "render_modes": []}  # noqa: RUF012 - PettingZoo reads it
    render_mode = None

    def __init__(
        self,
        consumers: int = 4,
        resources: int = 3,
        steps: int = 50,
        scarcity: float = 0.3,
        variation: float = 0.9,
        movement: float = 0.5,
        credit: str = "team",
    ) -> None:
        """`scarcity`: share of the mean needs of all that is not there. `variation`: of needs and priorities.
        `movement`: chance that a consumer comes later than at the beginning, and that it leaves before the end; the
        first one stays."""
        if credit not in CREDITS:
            raise ValueError(f"credit: {credit!r}, choose one of {', '.join(CREDITS)}")
        if consumers < 1 or resources < 1:
            raise ValueError(f"consumers, resources: {consumers} and {resources}, must be 1 or more")
        self.possible_agents = [f"consumer_{number}" for number in range(consumers)]
        self.agents: list[str] = []
        self.resources, self.steps, self.credit = resources, steps, credit
        self.scarcity, self.variation, self.movement = scarcity, variation, movement
        self._view = Box(0.0, np.inf, (4 * resources + 4,), np.float32)
        self._claims = Box(-1.0, 1.0, (resources,), np.float32)
        self._random = np.random.default_rng()

    def observation_space(self, agent: str) -> Box:
        return self._view

    def action_space(self, agent: str) -> Box:
        return self._claims

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        random, count = self._random, len(self.possible_agents)
        self.age = 0
        self.available = count * (1.0 - self.scarcity) * random.uniform(0.8, 1.2, self.resources)
        self.priority = 1.0 + 2.0 * self.variation * random.random(count)
        late, early = random.random((2, count)) < self.movement
        self._comes = np.where(late, random.integers(1, self.steps // 2 + 2, count), 0)
        self._goes = np.where(early, random.integers(self.steps // 2 + 2, self.steps + 2, count), self.steps + 2)
        self._comes[0], self._goes[0] = 0, self.steps + 2
        self.need, self.got = self._fresh(), np.zeros((count, self.resources))
        self.agents = self._listed()
        return self._by_agent(self._observed()), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Take the claims of all consumers that are there."""
        present = np.isin(self.possible_agents, self.agents)
        claims = np.zeros(self.got.shape)
        for number in np.flatnonzero(present):
            claims[number] = np.clip(actions[self.possible_agents[number]], -1.0, 1.0)
        self.got = self._shares(claims, present) * self.available
        worth, parts = self._worth(self.got, present)
        met = np.minimum(self.got, self.need).sum(axis=1) / self.need.sum(axis=1)
        rewards = self._by_agent(self._credited(claims, present, worth, met))
        infos: dict[str, Any] = {agent: parts | {"met": float(value)} for agent, value in self._by_agent(met).items()}
        unmet = np.maximum(self.need - self.got, 0.0)
        self.need = np.minimum(self._fresh() + CARRIED * unmet * present[:, None], MOST)
        self.age += 1
        before = self.agents
        leaving = {agent: bool(flag) for agent, flag in self._by_agent(self._goes <= self.age).items()}
        late = dict.fromkeys(before, self.age >= self.steps)
        self.agents = before + [agent for agent in self._listed() if agent not in before]
        observations = self._by_agent(self._observed())
        over = dict.fromkeys(self.agents, False) | leaving
        late |= {agent: self.age >= self.steps for agent in self.agents}
        earned = dict.fromkeys(self.agents, 0.0) | {agent: float(value) for agent, value in rewards.items()}
        infos = {agent: infos.get(agent, {}) for agent in self.agents}
        self.agents = [] if self.age >= self.steps else [agent for agent in self.agents if not over[agent]]
        return observations, earned, over, late, infos

    def state(self) -> NDArray[np.float32]:
        """Everybody's observations, zeros for those that are not there."""
        present = np.isin(self.possible_agents, self.agents)
        return (self._observed() * present[:, None]).reshape(-1).astype(np.float32)

    def _listed(self) -> list[str]:
        there = (self._comes <= self.age) & (self._goes > self.age)
        return [agent for agent, flag in zip(self.possible_agents, there, strict=True) if flag]

    def _fresh(self) -> Floats:
        """Needs of each consumer and resource, 1 in the mean."""
        return 1.0 + self.variation * self._random.uniform(-1.0, 1.0, (len(self.possible_agents), self.resources))

    def _shares(self, claims: Floats, present: NDArray[np.bool_]) -> Floats:
        """Of each resource, by consumer; none where none is there."""
        weights = np.exp(SHARPNESS * claims) * present[:, None]
        return np.asarray(weights / np.maximum(weights.sum(axis=0), 1e-12))

    def _worth(self, got: Floats, present: NDArray[np.bool_]) -> tuple[float, dict[str, float]]:
        """The team's reward for these allocations, and its two parts."""
        weight = self.priority[present, None]
        need = self.need[present]
        fairness = 1.0 - gini(got[present].sum(axis=1))
        efficiency = float((weight * np.minimum(got[present], need)).sum() / (weight * need).sum())
        return FAIRNESS * fairness + EFFICIENCY * efficiency, {"fairness": fairness, "efficiency": efficiency}

    def _credited(self, claims: Floats, present: NDArray[np.bool_], worth: float, met: Floats) -> Floats:
        """Each consumer's reward."""
        if self.credit == "individual":
            return met
        if self.credit == "team":
            return np.full(len(present), worth)
        rewards = np.zeros(len(present))
        for number in np.flatnonzero(present):
            others = present.copy()
            others[number] = False
            rewards[number] = worth - self._worth(self._shares(claims, others) * self.available, present)[0]
        return rewards

    def _observed(self) -> NDArray[np.float32]:
        """Rows of numbers that do not depend on how many consumers there are."""
        count = len(self.possible_agents)
        present = np.isin(self.possible_agents, self.agents)
        total = (self.need * present[:, None]).sum(axis=0)
        others = (total - self.need) / count
        own = [self.need, self.got, np.tile(self.available / count, (count, 1)), np.maximum(others, 0.0)]
        mean = (self.priority * present).sum() / max(1, int(present.sum()))
        facts = [self.priority, np.full(count, mean), np.full(count, present.mean())]
        facts += [np.full(count, self.age / self.steps)]
        return np.concatenate([*own, np.stack(facts, axis=1)], axis=1).astype(np.float32)

    def _by_agent(self, values: NDArray[Any]) -> dict[str, Any]:
        numbers = {agent: number for number, agent in enumerate(self.possible_agents)}
        return {agent: values[numbers[agent]] for agent in self.agents}


class Allocator(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """The same by one that decides for all: the specification's allocation matrix, consumers by resources, in a row."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it as a plain dictionary

    def __init__(self, **sizes: Any) -> None:
        """Arguments are those of Resources, but for the credit."""
        self._inner = Resources(**sizes)
        self._consumers = self._inner.possible_agents
        shape = (len(self._consumers), self._inner.resources)
        view = self._inner.observation_space(self._consumers[0]).shape
        self.observation_space = Box(0.0, np.inf, (shape[0] * view[0],), np.float32)
        self.action_space = Box(-1.0, 1.0, (shape[0] * shape[1],), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._inner.reset(seed=int(self.np_random.integers(2**31)))
        return self._inner.state(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        claims = dict(zip(self._consumers, np.reshape(action, (len(self._consumers), -1)), strict=True))
        _, earned, _, late, infos = self._inner.step(claims)
        first = self._consumers[0]  # it stays to the end
        return self._inner.state(), earned[first], False, late[first], infos[first]


def by_need(resources: Resources) -> dict[str, NDArray[np.float32]]:
    """Claims in proportion to needs and priorities: the rule to beat."""
    wanted = np.log(resources.need * np.sqrt(resources.priority)[:, None]) / SHARPNESS
    claims = np.clip(wanted - wanted.mean(), -1.0, 1.0).astype(np.float32)
    return {agent: claims[resources.possible_agents.index(agent)] for agent in resources.agents}
