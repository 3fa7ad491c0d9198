"""Spaces of other libraries' environments: what is seen as one row of numbers, what is done as theirs.

Observations: Box, Discrete, MultiDiscrete and MultiBinary, and every Tuple and Dict of these, flattened as
gymnasium.spaces.flatten does it: a whole number becomes a 1 in its place. Actions: Discrete; MultiDiscrete and
MultiBinary, whose combinations are numbered in row-major order (numpy.unravel_index); bounded Box of any shape; a Tuple
of Discrete and Box.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatten, flatten_space
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
    except NotImplementedError:  # Gymnasium's word for a space it cannot flatten; refused below, with the fix
        flat = space
    if not isinstance(flat, Box):
        raise ConfigError(FIELD, name, f"has observations {space}, which cannot be flattened", f"choose {SEEN}")
    return int(np.prod(flat.shape))


def row(name: str, space: Space[Any], observation: Any) -> NDArray[Any]:
    """One observation of the environment `name` as [width]; raises ConfigError where it has not the space's form.

    A Box's bounds are not looked at: many environments leave them, and what is not finite has an error of its own.
    """
    if what := _misfit(space, observation, "an observation"):
        fix = "correct its observation_space, or what it returns from reset and step"
        raise ConfigError(FIELD, name, f"has observations {space}, but returns {what}", fix)
    return np.asarray(flatten(space, observation))


def _misfit(space: Space[Any], value: Any, what: str) -> str | None:
    """What of the value, which `what` names, has not the space's form; None when it fits."""
    if isinstance(space, Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            return f"{what} that is {_kind(value)}, not a mapping with the keys {', '.join(map(str, space.spaces))}"
        parts = [(part, value[key], f"{what} whose {key!r}") for key, part in space.spaces.items()]
    elif isinstance(space, Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return f"{what} that is {_kind(value)}, not a tuple of {len(space.spaces)}"
        parts = [(part, value[n], f"{what} whose part {n}") for n, part in enumerate(space.spaces)]
    elif _fits(space, value):
        return None
    else:
        return f"{what} that is {_kind(value)}, which is not in {space}"
    return next((wrong for part in parts if (wrong := _misfit(*part))), None)


def _kind(value: Any) -> str:
    """Of what type it is, and how large; a number as it is."""
    if isinstance(value, int | float | np.number):
        return f"{type(value).__name__} {value}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__


def _fits(space: Space[Any], value: Any) -> bool:
    """Form and type are the space's, and a whole number is among those that have a place of their own."""
    if not isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        return space.contains(value)
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return False
    if isinstance(space, Discrete):
        return array.size == 1 and _whole(array) and 0 <= int(array.reshape(-1)[0]) - space.start < space.n
    if array.shape != space.shape or array.dtype.kind not in "biuf":
        return False
    if isinstance(space, MultiBinary):
        return bool(((array == 0) | (array == 1)).all())
    if isinstance(space, MultiDiscrete):
        places = array - space.start
        return _whole(array) and bool(((places >= 0) & (places < space.nvec)).all())
    if space.dtype.kind == "f":
        return True
    return _whole(array) and bool((array.astype(space.dtype) == array).all())


def _whole(array: NDArray[Any]) -> bool:
    """Numbers that NumPy takes as places."""
    return np.can_cast(array.dtype, np.int64)


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
