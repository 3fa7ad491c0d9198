"""Spaces of other libraries' environments: what is seen as one row of numbers, what is done as theirs.

Observations: Box, Discrete, MultiDiscrete and MultiBinary, and every Tuple and Dict of these, flattened as
gymnasium.spaces.flatten does it: a whole number becomes a 1 in its place. Actions: Discrete; MultiDiscrete and
MultiBinary, whose combinations are numbered in row-major order (numpy.unravel_index); bounded Box of any shape; a Tuple
of Discrete and Box.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatten_space
from numpy.typing import NDArray

from learnloop_environments.action_spaces import FIELD, ActionSpace
from learnloop_environments.errors import ConfigError

MOST_COMBINATIONS = 4096
SEEN = "Box, Discrete, MultiDiscrete or MultiBinary observations, or a Tuple or Dict of these"
REWRITE = "have a class of your own do that (spec.data.environmentConfigMap)"


def width(name: str, space: Space[Any]) -> int:
    """Numbers of a flattened observation of the environment `name`; raises ConfigError where it cannot be flattened."""
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) > 1:
        fix = f"turn them into a few numbers, or use the environment's state; {REWRITE}"
        raise ConfigError(FIELD, name, f"has observations {space}, which are images, and no network here sees", fix)
    try:
        flat: Space[Any] = flatten_space(space)
    except NotImplementedError:
        flat = space
    if not isinstance(flat, Box):
        raise ConfigError(FIELD, name, f"has observations {space}, which cannot be flattened", f"choose {SEEN}")
    return int(np.prod(flat.shape))


class Doing:
    """Translates actions as policies give them into those of a foreign environment's space."""

    def __init__(self, name: str, space: Space[Any]) -> None:
        """Of the environment `name`; raises ConfigError when nothing here acts in such a space."""
        self._space = space
        self._digits: tuple[int, ...] | None = None
        self._start = np.zeros(1, dtype=np.int64)
        if isinstance(space, MultiDiscrete | MultiBinary):
            self._digits = _digits(space)
            self._start = np.zeros(len(self._digits), dtype=np.int64)
            if isinstance(space, MultiDiscrete):
                self._start = np.asarray(space.start, dtype=np.int64).reshape(-1)
            combinations = int(np.prod(self._digits, dtype=np.float64))
            if combinations > MOST_COMBINATIONS:
                problem = f"has actions {space}: {combinations} combinations, {MOST_COMBINATIONS} are the most"
                raise ConfigError(FIELD, name, problem, f"take some of the choices away; {REWRITE}")
            self.actions = ActionSpace(combinations)
            return
        flat = Box(space.low.reshape(-1), space.high.reshape(-1), dtype=np.float32) if isinstance(space, Box) else space
        self.actions = ActionSpace.from_gymnasium(name, flat)
        choice = space[0] if isinstance(space, Tuple) else space
        if isinstance(choice, Discrete):
            self._start = np.asarray([choice.start], dtype=np.int64)

    def many(self, actions: NDArray[Any]) -> Any:
        """Actions [n] or [n, numbers] as a vectorised environment takes them."""
        count, bounds = len(actions), self.actions.bounds
        if self._digits is not None:
            chosen = np.stack(np.unravel_index(np.asarray(actions, dtype=np.int64), self._digits), axis=1) + self._start
            assert self._space.shape is not None  # of these two kinds it is always known
            return chosen.reshape(count, *self._space.shape).astype(self._space.dtype)
        if bounds is None:
            return np.asarray(actions) + self._start[0]
        if bounds.choices:
            return actions[:, 0].astype(np.int64) + self._start[0], np.ascontiguousarray(actions[:, 1:])
        assert self._space.shape is not None
        return np.asarray(actions, dtype=self._space.dtype).reshape(count, *self._space.shape)

    def one(self, action: Any) -> Any:
        """One action as a single environment takes it."""
        told = self.many(np.asarray(action)[None])
        if isinstance(told, tuple):
            return int(told[0][0]), told[1][0]
        return int(told[0]) if isinstance(self._space, Discrete) else told[0]


def _digits(space: MultiDiscrete | MultiBinary) -> tuple[int, ...]:
    if isinstance(space, MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return tuple(int(size) for size in np.asarray(space.nvec).reshape(-1))
