"""A uniform replay buffer: one ring per environment in one preallocated block, sampled with one gather per field."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_trainer.environments.base import Observations, Step


@dataclass(frozen=True, slots=True)
class Transitions:
    """A batch for one update; leading axis [samples]."""

    observation: torch.Tensor
    successor: torch.Tensor
    action: torch.Tensor  # int64
    reward: torch.Tensor
    alive: torch.Tensor  # 1.0 unless the episode terminated here


class Replay:
    """The rings of environments `members`. They advance in lockstep, so position and fill are single numbers."""

    def __init__(self, members: range, length: int, observations: int) -> None:
        """Room for `length` transitions of each environment; the oldest are overwritten."""
        self.members, self.length = members, length
        self.position = self.filled = 0
        shape = (len(members), length)
        self._fields: dict[str, NDArray[np.generic]] = {
            "observation": np.zeros((*shape, observations), dtype=np.float32),
            "successor": np.zeros((*shape, observations), dtype=np.float32),
            "action": np.zeros(shape, dtype=np.int64),
            "reward": np.zeros(shape, dtype=np.float32),
            "alive": np.zeros(shape, dtype=np.float32),
        }

    def add(self, observation: Observations, action: NDArray[np.int64], step: Step) -> None:
        """Store one vector step."""
        fields, at = self._fields, self.position
        fields["observation"][:, at], fields["successor"][:, at] = observation, step.successor
        fields["action"][:, at], fields["reward"][:, at] = action, step.reward
        fields["alive"][:, at] = ~step.terminated
        self.position = (at + 1) % self.length
        self.filled = min(self.filled + 1, self.length)

    def pick(self, members: NDArray[np.int64], slots: NDArray[np.int64], device: torch.device) -> Transitions:
        """Those of the transitions (member, slot) that these rings hold; the rest belong to other ranks."""
        mine = (members >= self.members.start) & (members < self.members.stop)
        flat = (members[mine] - self.members.start) * self.length + slots[mine]
        return Transitions(
            **{
                name: torch.from_numpy(array.reshape(-1, *array.shape[2:]).take(flat, axis=0)).to(device)
                for name, array in self._fields.items()
            }
        )

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The filled part of the rings, axis 0 = environment. Copies."""
        return {f"replay.{name}": array[:, : self.filled].copy() for name, array in self._fields.items()}

    def restore(self, state: dict[str, NDArray[np.generic]], position: int, filled: int) -> None:
        """Take up saved rings; raises KeyError or ValueError when they do not fit."""
        self.position, self.filled = position, filled
        for name, array in self._fields.items():
            array[:, :filled] = state[f"replay.{name}"]
