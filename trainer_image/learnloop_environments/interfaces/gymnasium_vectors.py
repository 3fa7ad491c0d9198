"""Vector environments of Gymnasium and PettingZoo.

Slower than a native environment, and its inner state cannot be saved: after a restart its episodes begin again.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from learnloop_common.reward_rules.outcome_values import numbers as numbers_of
from learnloop_environments import errors, randomness
from learnloop_environments.interfaces.foreign_spaces import ActionDecoder, begin, foreign_seeds, layout, row, width
from learnloop_environments.spaces import FIELD, Observations, Step

EXTRA = re.compile(r"gymnasium\[([a-z0-9_-]+)\]")


class Flattened(gymnasium.Env[Any, Any]):
    """One environment with rows of numbers for observations and our actions, each checked against its spaces.

    No gymnasium.Wrapper, which takes nothing but a gymnasium.Env: a user's class needs only its methods and spaces.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it as a plain dictionary

    def __init__(self, name: str, inner: Any, max_steps: int | None = None) -> None:
        """Around `inner`, which it closes before it raises ConfigError: its spaces cannot be translated."""
        self._name, self._inner, self.values = name, inner, dict[str, float]()
        self._age, self._limit = 0, max_steps
        try:
            self.space = inner.observation_space
            self.decoder = ActionDecoder(name, inner.action_space)
            self.observation_space = Box(-np.inf, np.inf, (width(name, self.space),), np.float32)
        except errors.ConfigError:
            self.close()
            raise
        actions = self.decoder.actions
        numbers = None if actions.bounds is None else (actions.actions,)
        self.action_space = Discrete(actions.actions) if numbers is None else Box(-np.inf, np.inf, numbers, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Raises ConfigError for what a reset must not return."""
        del options  # there are none, and a class that knows none is played
        self._age = 0
        begun = self._inner.reset(seed=seed)
        if not isinstance(begun, tuple) or len(begun) != 2:
            raise self._wrong("reset", begun, "observation and info")
        return row(self._name, self.space, begun[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Raises ConfigError for what a step must not return. Of the info: `is_success`; its numbers are `values`."""
        result = self._inner.step(self.decoder.decode(action))
        if not isinstance(result, tuple) or len(result) != 5:
            raise self._wrong("step", result, "observation, reward, terminated, truncated and info")
        observation, *numbers, info = result
        success = info.get("is_success") if isinstance(info, Mapping) else None
        scalars = dict(zip(("reward", "terminated", "truncated"), numbers, strict=True))
        for what, value in (scalars if success is None else scalars | {"is_success": success}).items():
            if not isinstance(value, bool | int | float | np.generic | np.ndarray) or np.ndim(value):
                raise self._wrong("step", value, f"one number as its {what}")
        reward, terminated, truncated = numbers
        self._age += 1
        truncated = truncated or (self._age == self._limit and not terminated)
        final = {} if success is None else {"is_success": bool(success)}
        self.values = numbers_of(info) if isinstance(info, Mapping) else {}
        return row(self._name, self.space, observation), float(reward), bool(terminated), bool(truncated), final

    def _wrong(self, method: str, value: Any, wanted: str) -> errors.ConfigError:
        shown = f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else repr(value)
        return errors.ConfigError(FIELD, self._name, f"returns {shown[:100]} from {method}", f"have it return {wanted}")

    def close(self) -> None:
        close(self._inner)


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    """By name, a number of each row; NaN where it has none."""
    names = dict.fromkeys(name for one in rows for name in one)
    return {name: np.asarray([one.get(name, np.nan) for one in rows]) for name in names}


def close(environment: Any) -> None:
    """Release what a foreign environment holds, where it can."""
    getattr(environment, "close", lambda: None)()


def _open(name: str, count: int, entry: Callable[[], Any] | None, max_steps: int | None) -> Any:
    """Raises ConfigError for names Gymnasium does not know or cannot build, and for what cannot be flattened."""

    def flattened(inner: Any) -> Any:
        return Flattened(name, inner, max_steps)

    if entry is not None:

        def built() -> Any:
            return flattened(entry())

        return gymnasium.vector.SyncVectorEnv([built] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    try:
        return gymnasium.make_vec(
            name,
            num_envs=count,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            wrappers=[flattened],
        )
    except gymnasium.error.DependencyNotInstalled as error:
        extra = EXTRA.search(str(error))
        package = f'"{extra[0]}"' if extra else "what is missing"
        fix = f"build the trainer's and the actors' image with {package} installed, and name them in the pods"
        raise errors.ConfigError(FIELD, name, f"lacks a dependency ({error})", fix) from None
    except (gymnasium.error.Error, ModuleNotFoundError, ImportError) as error:
        names = "CartPole-v1 or another environment registered with Gymnasium"
        raise errors.ConfigError(FIELD, name, f"is unknown to this image ({error})", f"name {names}") from None


class Unsaved(ABC):
    """Neither Gymnasium nor PettingZoo has a way to save an environment: a restart begins new episodes."""

    @abstractmethod
    def reset(self) -> Observations:
        """Begin new episodes."""

    def state(self) -> None:
        return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        del state
        return self.reset()


class GymnasiumVector(Unsaved):
    """n copies of one Gymnasium environment; observations are flattened to float32."""

    def __init__(
        self,
        name: str,
        split: randomness.Split,
        seed: int,
        members: range,
        entry: Callable[[], Any] | None = None,
        max_steps: int | None = None,
    ) -> None:
        """Environments `members` of the run with this seed, of Gymnasium's name or made by `entry`.

        Raises ConfigError when the spaces do not fit.
        """
        self.name, self._inner = name, _open(name, len(members), entry, max_steps)
        self.observations = int(self._inner.single_observation_space.shape[0])
        self.members = members
        actions = self._inner.envs[0].decoder.actions
        self.bounds, self.actions = actions.bounds, actions.actions
        self.space = self._inner.envs[0].space
        self._seeds = foreign_seeds(split, seed, members)

    def _flat(self, observations: Any) -> Observations:
        return np.asarray(observations, dtype=np.float32).reshape(len(self.members), self.observations).copy()

    def reset(self) -> Observations:
        return self._flat(begin(lambda seeds: self._inner.reset(seed=seeds)[0], self._seeds))

    def step(self, actions: NDArray[Any]) -> Step:
        result = self._inner.step(actions)
        observation = self._flat(result[0])
        terminated, truncated = np.asarray(result[2], dtype=np.bool_), np.asarray(result[3], dtype=np.bool_)
        successor = observation
        if (terminated | truncated).any():
            successor = observation.copy()
            for index in np.flatnonzero(terminated | truncated):
                successor[index] = np.asarray(result[4]["final_obs"][index], dtype=np.float32).reshape(-1)
        ended = terminated | truncated
        reward = np.asarray(result[1], dtype=np.float32)
        values = columns([one.values for one in self._inner.envs])
        return Step(observation, successor, reward, terminated, truncated, self._success(result[4], ended), values)

    def _success(self, info: dict[str, Any], ended: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """`is_success` of the episodes that ended, where the environment says it."""
        success = info.get("final_info", {}).get("is_success") if ended.any() else None
        return None if success is None else np.asarray(success, dtype=np.bool_) & ended

    def close(self) -> None:
        self._inner.close()


# Recognised by its interface, so that the trainer needs no PettingZoo. Each agent's observation, flattened, ends with
# the agent's number. An agent has left when it is terminated or truncated. While it is not listed, or has left, it
# sees zeros and earns nothing. The episode ends when none is listed but those that have left. Slower than a native
# team.


class TeamVector(Unsaved):
    """n copies of one parallel environment."""

    def __init__(
        self,
        name: str,
        split: randomness.Split,
        seed: int,
        members: range,
        entry: Callable[[], Any],
        max_steps: int | None = None,
    ) -> None:
        """Environments `members` of the run with this seed; raises ConfigError when the spaces do not fit."""
        self.name, self.members, self._limit, self._age = name, members, max_steps, [0 for _ in members]
        self._all = [entry() for _ in members]
        first = self._all[0]
        self._names = list(first.possible_agents)
        self.agents = len(self._names)
        spaces = [first.observation_space(agent) for agent in self._names]
        action_spaces = [first.action_space(agent) for agent in self._names]
        if any(layout(space) != layout(spaces[0]) for space in spaces):
            raise errors.ConfigError(
                FIELD, name, "has agents with different observations", "give all agents equal spaces"
            )
        if any(space != action_spaces[0] for space in action_spaces):
            raise errors.ConfigError(FIELD, name, "has agents with different actions", "give all agents equal spaces")
        self._spaces = dict(zip(self._names, spaces, strict=True))
        self.space, self._width = spaces[0], width(name, spaces[0])
        self.observations = self._width + self.agents
        self._decoder = ActionDecoder(name, action_spaces[0])
        self.bounds, self.actions = self._decoder.actions.bounds, self._decoder.actions.actions
        self._seeds = foreign_seeds(split, seed, members)
        self._playing = [set(self._names) for _ in members]
        self._left: list[set[Any]] = [set() for _ in members]

    def _look(self, n: int, observation: dict[Any, Any]) -> NDArray[np.float32]:
        rows = np.zeros((self.agents, self.observations), dtype=np.float32)
        rows[:, self._width :] = np.eye(self.agents)
        for own, agent in zip(rows, self._names, strict=True):
            if agent in observation and agent in self._playing[n]:
                own[: self._width] = row(self.name, self._spaces[agent], observation[agent])
        return rows

    def _begin(self, n: int, seed: int | None = None) -> NDArray[np.float32]:
        observation, _ = self._all[n].reset(seed=seed)
        self._playing[n], self._left[n], self._age[n] = set(self._all[n].agents), set(), 0
        return self._look(n, observation)

    def reset(self) -> Observations:
        """Raises ConfigError for an observation that has not its space's form."""
        return np.stack(begin(lambda seeds: [self._begin(n, seed) for n, seed in enumerate(seeds)], self._seeds))

    def step(self, actions: NDArray[Any]) -> Step:
        count = len(self._all)
        successor = np.empty((count, self.agents, self.observations), dtype=np.float32)
        reward = np.zeros((count, self.agents), dtype=np.float32)
        terminated, truncated = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        observation, values = successor, list[dict[str, float]]()
        for n, one in enumerate(self._all):
            chosen = {
                agent: self._decoder.decode(actions[n, k]) for k, agent in enumerate(self._names) if agent in one.agents
            }
            observations, earned, over, late, infos = one.step(chosen)
            by_agent = columns([numbers_of(infos[agent]) for agent in self._names if agent in infos])
            values.append({name: float(np.nanmean(column)) for name, column in by_agent.items()})
            self._playing[n] |= set(one.agents) - self._left[n]
            successor[n] = self._look(n, observations)
            reward[n] = [earned.get(agent, 0.0) if agent in self._playing[n] else 0.0 for agent in self._names]
            self._left[n] |= {agent for agent in self._playing[n] if over.get(agent) or late.get(agent)}
            self._playing[n] = (self._playing[n] - self._left[n]) & set(one.agents)
            self._age[n] += 1
            if not self._playing[n] or self._age[n] == self._limit:
                terminated[n] = not self._playing[n] and (not any(late.values()) or all(over.values()))
                truncated[n] = not terminated[n]
                observation = successor.copy() if observation is successor else observation
                observation[n] = self._begin(n)
        return Step(observation, successor, reward, terminated, truncated, values=columns(values))

    def close(self) -> None:
        for one in self._all:
            close(one)
