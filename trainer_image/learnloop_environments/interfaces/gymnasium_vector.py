"""Any Gymnasium environment with Box observations and Discrete, bounded Box or both actions, through make_vec.

Slower than a native environment, and its inner state cannot be saved: after a restart its episodes begin anew.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from learnloop_environments.action_spaces import FIELD, ActionSpace, ActionType
from learnloop_environments.base import Observations, Step
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split, episode_seeds


def _open(name: str, count: int, entry: Callable[[], Any] | None) -> Any:
    """Raises ConfigError for names Gymnasium does not know or cannot build."""
    if entry is not None:
        return gymnasium.vector.SyncVectorEnv([entry] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    try:
        return gymnasium.make_vec(
            name,
            num_envs=count,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(FIELD, name, f"lacks a dependency ({error})", "use a trainer image that has it") from None
    except (gymnasium.error.Error, ModuleNotFoundError, ImportError) as error:
        known = "CartPole-v1 or another environment registered with Gymnasium"
        raise ConfigError(FIELD, name, f"is unknown to the trainer image ({error})", f"name {known}") from None


class GymnasiumVector:
    """n copies of one Gymnasium environment; observations are flattened to float32."""

    def __init__(
        self, name: str, split: Split, seed: int, members: range, entry: Callable[[], Any] | None = None
    ) -> None:
        """Environments `members` of the run with this seed, of Gymnasium's name or made by `entry`.

        Raises ConfigError when the spaces do not fit.
        """
        self._inner = _open(name, len(members), entry)
        observation, action = self._inner.single_observation_space, self._inner.single_action_space
        if not isinstance(observation, Box):
            raise ConfigError(FIELD, name, f"has observations {observation}", "choose one with Box observations")
        self.members = members
        self.observations = int(np.prod(observation.shape))
        space = ActionSpace.from_gymnasium(name, action)
        self.bounds, self.actions = space.bounds, space.actions
        choice = action[0] if space.type is ActionType.HYBRID else action
        self._first_action = int(choice.start) if isinstance(choice, Discrete) else 0
        # Gymnasium takes 32 bits here; the upper half belongs to held-out episodes.
        seeds = episode_seeds(split, seed, np.asarray(members, dtype=np.uint64), 0) >> np.uint64(32)
        self._seeds = [int(value) for value in seeds]

    def _flat(self, observations: Any) -> Observations:
        return np.asarray(observations, dtype=np.float32).reshape(len(self.members), self.observations).copy()

    def reset(self) -> Observations:
        """See VectorEnvironment.reset."""
        return self._flat(self._inner.reset(seed=self._seeds)[0])

    def step(self, actions: NDArray[Any]) -> Step:
        """See VectorEnvironment.step."""
        result = self._inner.step(self._told(actions))
        observation = self._flat(result[0])
        terminated, truncated = np.asarray(result[2], dtype=np.bool_), np.asarray(result[3], dtype=np.bool_)
        successor = observation
        if (terminated | truncated).any():
            successor = observation.copy()
            for index in np.flatnonzero(terminated | truncated):
                successor[index] = np.asarray(result[4]["final_obs"][index], dtype=np.float32).reshape(-1)
        ended = terminated | truncated
        reward = np.asarray(result[1], dtype=np.float32)
        return Step(observation, successor, reward, terminated, truncated, self._success(result[4], ended))

    def _told(self, actions: NDArray[Any]) -> Any:
        if self.bounds is None:
            return actions + self._first_action
        if not self.bounds.choices:
            return actions
        return actions[:, 0].astype(np.int64) + self._first_action, np.ascontiguousarray(actions[:, 1:])

    def _success(self, info: dict[str, Any], ended: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """`is_success` of the episodes that ended, where the environment says it."""
        told = info.get("final_info", {}).get("is_success") if ended.any() else None
        return None if told is None else np.asarray(told, dtype=np.bool_) & ended

    def state(self) -> None:
        """Gymnasium has no way to save an environment."""
        return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        """There is nothing to restore: begin new episodes."""
        del state
        return self.reset()

    def close(self) -> None:
        """See VectorEnvironment.close."""
        self._inner.close()
