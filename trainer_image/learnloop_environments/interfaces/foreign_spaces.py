"""Spaces and seeds of Gymnasium and PettingZoo.

Many such environments take a signed number of 32 bits. Numbers of held-out episodes are permuted within 30 bits instead
of hashed, so no two of an agent's first 127 runs share a seed: hashed ones repeat. Higher bits of the number stand
before these bits. Bit 30 marks the seed of a held-out episode.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatdim, flatten
from numpy.typing import ArrayLike, NDArray

from learnloop_api.uniform_policy import MOST
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, Split, Words, episode_seeds, words
from learnloop_environments.spaces import FIELD, ActionSpace, Bounds

Begun = TypeVar("Begun")
SHORT = 31
"""Bits that every environment takes."""
_BITS = 30
_ALL = np.uint64(2**_BITS - 1)
_TOP = np.uint64(2**_BITS)
_ROUNDS = ((16, 0x3FEB352D), (15, 0x046CA68B), (16, 0x1BD1E995))
"""Odd multipliers and shifts: each round is a permutation of 30 bits."""


def foreign_seeds(split: Split, seed: int, members: ArrayLike) -> list[int]:
    """One for each environment of the run with this seed; of held-out ones no two are the same."""
    numbers = np.atleast_1d(np.asarray(members, dtype=np.uint64))
    if split is Split.TRAINING:
        return [int(value) for value in episode_seeds(split, seed, numbers, 0) >> np.uint64(33)]
    lap = numbers >> np.uint64(_BITS)
    seeds = lap << np.uint64(SHORT) | _TOP | _permuted(numbers & _ALL, seed, lap)
    return [int(value) for value in seeds]


def begin(reset: Callable[[list[int]], Begun], seeds: Sequence[int]) -> Begun:
    """Resets with these seeds; where an environment takes no more, with the lower 31 bits of them.

    Raises:
        Exception: whatever `reset` raises, of seeds that are short.
    """
    short = [value & 2**SHORT - 1 for value in seeds]
    if short != list(seeds):
        try:
            return reset(list(seeds))
        except Exception:  # whatever a foreign environment says of a number that is too long
            return reset(short)
    return reset(short)


def _permuted(values: Words, seed: int, lap: Words) -> Words:
    """Every lap of 2**30 numbers has a permutation of its own, so that short seeds of two laps meet by chance alone."""
    for number, (shift, multiplier) in enumerate(_ROUNDS):
        values = values + words(Purpose.EPISODE, seed, lap, number) & _ALL
        values = values ^ values >> np.uint64(shift)
        values = values * np.uint64(multiplier) & _ALL
    return values ^ values >> np.uint64(15)


# Observations: Box, Discrete, MultiDiscrete and MultiBinary, and every Tuple and Dict of these, flattened as
# gymnasium.spaces.flatten does it: a whole number becomes a 1 in its place. Actions: the same spaces. All choices of
# an action together are one, numbered in row-major order (numpy.unravel_index). All Box numbers follow it; those of
# an integer Box are rounded, each whole number having an equal part of the range.

PLAYED = "Box, Discrete, MultiDiscrete or MultiBinary, or a Tuple or Dict of these"
REWRITE = "have a class of your own do that (spec.data.environmentConfigMap)"
LARGEST_WHOLE = 2**20
"""Of an integer Box's bounds: float32, in which policies act, still has the halves between whole numbers."""


def width(name: str, space: Space[Any]) -> int:
    """Numbers of a flattened observation of the environment `name`; raises ConfigError where it cannot be flattened."""
    total = 0
    for leaf in _leaves(space):
        if not isinstance(leaf, Box | Discrete | MultiDiscrete | MultiBinary):
            problem = f"has observations {space}, and {type(leaf).__name__} cannot be flattened"
            raise ConfigError(FIELD, name, problem, f"choose {PLAYED}")
        total += int(flatdim(leaf))
    if not 1 <= total <= MOST:
        problem = f"has observations {space}: {total} numbers, 1 to {MOST} are possible"
        raise ConfigError(FIELD, name, problem, f"leave some of them out; {REWRITE}")
    return total


def image(space: Space[Any]) -> bool:
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) > 1


def refuse_images(name: str, space: Space[Any] | None) -> None:
    """Raises ConfigError where a flattened observation has the pixels of an image: no network for rows sees them."""
    if space is not None and any(map(image, _leaves(space))):
        fix = f"set engine to sb3, which has CnnPolicy, or turn them into a few numbers; {REWRITE}"
        raise ConfigError(FIELD, name, f"has observations {space}, which are images", fix)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an observation: numbers `at` to `end` of the flattened one, which are of this shape in an image."""

    name: str
    at: int
    end: int
    shape: tuple[int, ...] | None


def parts(space: Space[Any], name: str = "", at: int = 0) -> list[Part]:
    """All parts of a space, by the keys that lead to each, as `flatten` puts them in a row."""
    if isinstance(space, Dict | Tuple):
        named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        result: list[Part] = []
        for key, inner in named:
            result += parts(inner, f"{name}.{key}" if name else str(key), result[-1].end if result else at)
        return result
    return [Part(name, at, at + int(flatdim(space)), space.shape if image(space) else None)]


def layout(space: Space[Any]) -> Any:
    """A form that two spaces share if each place of their flat observations means the same; bounds do not count."""
    if isinstance(space, Dict):
        return [(key, layout(part)) for key, part in space.spaces.items()]
    if isinstance(space, Tuple):
        return [layout(part) for part in space.spaces]
    return ("Box", space.shape) if isinstance(space, Box) else repr(space)


def row(name: str, space: Space[Any], observation: Any) -> NDArray[np.float32]:
    """One observation of the environment `name` as [width]; raises ConfigError where it has not the space's form.

    A Box's bounds are not looked at: many environments leave them, and what is not finite has an error of its own.
    """
    if not _fits(space, observation):
        problem = f"has observations {space}, but returns an observation that is {_kind(observation)}"
        fix = "correct its observation_space, or what it returns from reset and step"
        raise ConfigError(FIELD, name, problem, fix)
    return np.asarray(flatten(space, observation), dtype=np.float32)


def _kind(value: Any) -> str:
    """Of what type it is, and how large; a number as it is."""
    if isinstance(value, int | float | np.number):
        return f"{type(value).__name__} {value}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__


def _fits(space: Space[Any], value: Any) -> bool:
    """Whether form and type are the space's, and a whole number has a place of its own."""
    if isinstance(space, Dict):
        keys = isinstance(value, Mapping) and set(value) == set(space.spaces)
        return keys and all(_fits(part, value[key]) for key, part in space.spaces.items())
    if isinstance(space, Tuple):
        whole = isinstance(value, tuple | list) and len(value) == len(space.spaces)
        return whole and all(map(_fits, space.spaces, value))
    if isinstance(space, Discrete):
        return space.contains(int(value) if isinstance(value, np.bool_) else value)
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return False
    if array.shape != space.shape or array.dtype.kind not in "biuf":
        return False
    if isinstance(space, Box):
        return space.dtype.kind == "f" or bool((array.astype(space.dtype) == array).all())
    return array.dtype.kind != "f" and space.contains(array)


class ActionDecoder:
    """Translates actions as policies give them into members of a foreign environment's action space."""

    def __init__(self, name: str, space: Space[Any]) -> None:
        """Of the environment `name`; raises ConfigError, with the fix, when nothing here acts in such a space."""
        self._space = space
        digits: list[int] = []
        low, high = [np.empty(0)], [np.empty(0)]
        for leaf in _leaves(space):
            if isinstance(leaf, Box):
                _require_translatable(name, leaf)
                margin = 0.0 if leaf.dtype.kind == "f" else 0.5
                low.append(leaf.low.reshape(-1).astype(np.float64) - margin)
                high.append(leaf.high.reshape(-1).astype(np.float64) + margin)
            elif isinstance(leaf, Discrete | MultiDiscrete | MultiBinary):
                digits += _digits(leaf)
            else:
                problem = f"has actions {space}, and a policy cannot choose a {type(leaf).__name__}"
                raise ConfigError(FIELD, name, problem, f"choose {PLAYED}; {REWRITE}")
        self._digits, choices = tuple(digits), math.prod(digits) if digits else 0
        ends = [np.concatenate(side).astype(np.float32) for side in (low, high)]
        count = len(ends[0])
        if choices > MOST or count > MOST or not choices + count:
            problem = f"has actions {space}: {choices} combinations of choices and {count} numbers"
            raise ConfigError(FIELD, name, problem, f"leave 1 to {MOST} of each; {REWRITE}")
        if not count:
            self.actions = ActionSpace(choices)
            return
        if digits:
            ends = [
                np.concatenate((np.asarray([end], np.float32), side))
                for end, side in zip((0, choices - 1), ends, strict=True)
            ]
        self.actions = ActionSpace(bool(digits) + count, Bounds(ends[0], ends[1], choices))

    def decode(self, action: Any) -> Any:
        """One action, a whole number or numbers [n], as a member of the space."""
        numbers = np.atleast_1d(np.asarray(action))
        choice, rest = (numbers[0], numbers[1:]) if self._digits else (0, numbers)
        digits = iter(np.unravel_index(int(choice), self._digits)) if self._digits else iter(())
        return _build(self._space, digits, iter(rest.tolist()))


def _leaves(space: Space[Any]) -> Iterator[Space[Any]]:
    if isinstance(space, Dict):
        for part in space.spaces.values():
            yield from _leaves(part)
    elif isinstance(space, Tuple):
        for part in space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _build(space: Space[Any], digits: Iterator[Any], numbers: Iterator[float]) -> Any:
    """A member of the space, of the next digits and numbers."""
    if isinstance(space, Dict):
        return {key: _build(part, digits, numbers) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_build(part, digits, numbers) for part in space.spaces)
    if isinstance(space, Discrete):
        return space.dtype.type(int(space.start) + int(next(digits)))
    assert space.shape is not None
    if not isinstance(space, Box):
        chosen = np.asarray([int(next(digits)) for _ in range(math.prod(space.shape))]).reshape(space.shape)
        return np.asarray(chosen + space.start if isinstance(space, MultiDiscrete) else chosen, dtype=space.dtype)
    given = np.asarray([next(numbers) for _ in range(math.prod(space.shape))]).reshape(space.shape)
    wanted = given.astype(space.dtype) if space.dtype.kind == "f" else np.rint(given).astype(np.int64)
    return np.asarray(np.clip(wanted, space.low, space.high), dtype=space.dtype)


def _require_translatable(name: str, box: Box) -> None:
    """Raises ConfigError where float32, in which policies act, cannot tell the Box's numbers apart."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (side.astype(np.float32) for side in (box.low, box.high))
        narrow = not np.isfinite(high - low).all() or not (low < high).all()
    if not np.isfinite([low, high]).all():
        problem, fix = "which is not bounded", "give it finite bounds"
    elif narrow:
        problem = "with a number that cannot vary, or varies by more than float32 holds"
        fix = "give every number a lower low than high, and leave constants out"
    elif box.dtype.kind != "f" and max(-low.min(initial=0), high.max(initial=0)) > LARGEST_WHOLE:
        problem, fix = "an integer Box with large bounds", f"keep them within -{LARGEST_WHOLE} and {LARGEST_WHOLE}"
    else:
        return
    raise ConfigError(FIELD, name, f"has actions {box}, {problem}", f"{fix}; {REWRITE}")


def _digits(space: Discrete[Any] | MultiDiscrete[Any] | MultiBinary) -> list[int]:
    if isinstance(space, Discrete):
        return [int(space.n)]
    if isinstance(space, MultiBinary):
        return [2] * math.prod(space.shape)
    return [int(size) for size in np.asarray(space.nvec).reshape(-1)]
