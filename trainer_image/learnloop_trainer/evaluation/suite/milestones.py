"""The policy's weights at five points of training: part of the checkpoint, so a restart forgets none."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from learnloop_trainer.neural.dense_networks import Network

Arrays = dict[str, NDArray[np.generic]]
POINTS = 5


class Milestones:
    """Weights of some perceptrons at the first iteration that ends at or after each fifth of the run."""

    def __init__(self, total_steps: int, perceptrons: Iterable[str]) -> None:
        """Nothing is kept yet; `perceptrons` are the names that the exported graph is made of."""
        self._total, self._prefixes = total_steps, tuple(f"{name}." for name in perceptrons)
        self.kept: dict[int, dict[str, NDArray[np.float32]]] = {}

    def note(self, before: int, step: int, network: Network) -> None:
        """Training went from step `before` to `step`, and the network to what it is now."""
        if POINTS * before // self._total < min(POINTS, POINTS * step // self._total):
            arrays = network.exported()
            wanted = [name for name in arrays if name.startswith(self._prefixes) or name in network.fixed]
            self.kept[step] = {name: arrays[name].copy() for name in wanted}

    def state(self) -> Arrays:
        """All of it, by step and name."""
        return {f"{step}/{name}": array for step, arrays in self.kept.items() for name, array in arrays.items()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take it up again."""
        self.kept = {}
        for key, array in state.items():
            step, name = key.split("/", 1)
            self.kept.setdefault(int(step), {})[name] = np.asarray(array, dtype=np.float32)
