"""The environment of a learner whose samplers play it: its spaces are known, its steps are elsewhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations, Step, VectorEnvironment


class DistantEnvironment:
    """A VectorEnvironment with the spaces of a real one."""

    def __init__(self, sample: VectorEnvironment, members: range) -> None:
        """`sample` is asked for its spaces, and closed."""
        self.observations, self.actions, self.members = sample.observations, sample.actions, members
        self._bounds = sample.bounds
        sample.close()

    @property
    def bounds(self) -> Bounds | None:
        """See VectorEnvironment.bounds."""
        return self._bounds

    def reset(self) -> Observations:
        """Zeros: nobody looks at them."""
        return np.zeros((len(self.members), self.observations), dtype=np.float32)

    def step(self, actions: NDArray[Any]) -> Step:
        """Raises NotImplementedError: only samplers take steps."""
        raise NotImplementedError(f"samplers take the steps of this run, and {len(actions)} were asked of its learner")

    def state(self) -> None:
        """Episodes under way are the samplers'."""
        return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        """See VectorEnvironment.restore."""
        del state
        return self.reset()

    def close(self) -> None:
        """See VectorEnvironment.close: there is nothing to release."""
