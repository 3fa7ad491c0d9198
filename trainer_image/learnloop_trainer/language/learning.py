"""Parts that the algorithms for language models share: experience, updates over all ranks, and their curves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.errors import NumericError
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import Episode
from learnloop_trainer.neural.schedules import step_size

Arrays = dict[str, NDArray[np.generic]]


class Experience(Protocol):
    """Source of what is learned from. Collective: all ranks ask in the same order.

    Rewarded algorithms ask for `episodes` of a round, demonstrations come from `every`, preferences from `pairs`.
    """

    def state(self) -> Arrays:
        """The record, so that what arrives later cannot change a run that was interrupted."""

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take the record up again."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The run as an algorithm for language models sees it."""

    network: LanguageNetwork
    experience: Any  # an Experience with the method that the algorithm asks for
    group: Group
    seed: int
    total_steps: int


@dataclass(frozen=True, slots=True)
class Round:
    """Result of one call of `iterate`, over all ranks: the latest returns, and points of curves."""

    returns: Sequence[float]
    curves: Mapping[str, float]


class LanguageLearner:
    """An algorithm with its state. All ranks call the same methods in the same order."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self.parameters, self.setting, self.network, self.step = parameters, setting, setting.network, 0

    def iterate(self) -> Round:
        raise NotImplementedError

    def shared(self) -> Arrays:
        """State, equal on all ranks: weights, optimiser, counters, record."""
        record: Arrays = self.setting.experience.state()
        return self.network.state() | {"step": np.asarray([self.step], dtype=np.int64)} | record

    def restore(self, shared: Mapping[str, NDArray[np.generic]]) -> None:
        """Take it up again; raises KeyError or ValueError when it belongs to another network."""
        self.network.restore(shared)
        self.step = int(shared["step"][0])
        self.setting.experience.restore(shared)


class Sums:
    """Named sums over this rank's tokens or episodes, to become means over all ranks at once."""

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = {}

    def add(self, name: str, total: float | torch.Tensor, count: float) -> None:
        sums = self._found.setdefault(name, [0.0, 0.0])
        sums[0] += float(total)
        sums[1] += count

    def means(self, group: Group, names: Sequence[str]) -> dict[str, float]:
        """Collective: the means; a name without anything counted is left out."""
        flat = [number for name in names for number in self._found.get(name, [0.0, 0.0])]
        totals = group.sum(flat)
        pairs = zip(names, totals[::2], totals[1::2], strict=True)
        return {name: total / count for name, total, count in pairs if count}


@dataclass(slots=True)
class Stepper:
    """Takes optimiser steps that are the same on all ranks."""

    parameters: Parameters
    setting: Setting
    norms: list[float] = field(default_factory=list)

    def step(self, done: int) -> None:
        """Add up the ranks' gradients and take one step; raises NumericError for a NaN. `done`: of total_steps."""
        network = self.setting.network
        self.setting.group.add_up(network.gradient)
        rate = step_size(self.parameters, self.parameters.learning_rate, done / self.setting.total_steps)
        norm = network.step(rate, self.parameters.max_gradient_norm, self.parameters.weight_decay)
        if not np.isfinite(norm):
            raise NumericError(f"loss is not finite at step {done}; lower the learning rate or the size of the rewards")
        self.norms.append(norm)


def token_weights(episodes: Sequence[Episode], total: float) -> list[float]:
    """1 / (sampled tokens x episodes of the update), for each episode: every rollout counts the same."""
    return [1.0 / (max(1, episode.sampled) * total) for episode in episodes]


def spread(values: Iterable[float], members: Sequence[int], owner: torch.Tensor) -> torch.Tensor:
    """A number of each episode, at each of the batch's tokens; `owner` [n] as Batch.episode."""
    found = list(values)
    picked = torch.tensor([found[member] for member in members], dtype=torch.float32)
    return picked.to(owner.device)[owner]


Maker = Callable[[Any, Setting], LanguageLearner]
