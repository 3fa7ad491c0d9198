"""Environments that this process does not play: their spaces alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.uniform_policy import parse
from learnloop_environments.base import Bounds, Observations, Step
from learnloop_environments.errors import ConfigError

FIELD = "spec.data.spaces"


class Unplayed:
    """A VectorEnvironment for learners of logged experience alone."""

    def __init__(self, spaces: str, members: range) -> None:
        """`spaces`: the address of the uniform policy; raises ConfigError when it says too little."""
        fix = "write the spaces, e.g. uniform://discrete/2?observations=4"
        try:
            spec = parse(spaces)
        except ValueError as error:
            raise ConfigError(FIELD, spaces, f"is refused: {error}", fix) from None
        if spec.observations is None:
            raise ConfigError(FIELD, spaces, "has no length of an observation", fix)
        self.observations, self.members = spec.observations, members
        self.actions, self._bounds = spec.choices, None
        if spec.low:
            first = [(0.0, spec.choices - 1.0)] if spec.choices else []
            ends = [*first, *zip(spec.low, spec.high, strict=True)]
            low, high = (np.asarray([end[side] for end in ends], dtype=np.float32) for side in (0, 1))
            try:
                self.actions, self._bounds = len(ends), Bounds(low, high, spec.choices)
            except ValueError as error:
                raise ConfigError(FIELD, spaces, f"is refused: {error}", fix) from None

    @property
    def bounds(self) -> Bounds | None:
        return self._bounds

    def reset(self) -> Observations:
        return np.zeros((len(self.members), self.observations), dtype=np.float32)

    def step(self, actions: NDArray[Any]) -> Step:
        """Raises ConfigError."""
        del actions
        fix = "name the environment as spec.data.environment, or learn by bc, cql or iql-offline"
        raise ConfigError("spec.data.environment", "", "is missing, and the run takes a step in it", fix)

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        return {"members": np.asarray(self.members)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        del state
        return self.reset()

    def close(self) -> None:
        """See VectorEnvironment.close."""
