"""Seeds of episodes for environments that are not learnloop's: not negative, of 31 bits where possible.

Many such environments take a signed number of 32 bits. Numbers of held-out episodes are permuted within 30 bits instead
of hashed, so no two of an agent's first 127 runs share a seed: hashed ones repeat. Higher bits of the number stand
before these bits. Bit 30 marks the seed of a held-out episode.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from learnloop_environments.randomness import Purpose, Split, Words, episode_seeds, words

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
    found = lap << np.uint64(SHORT) | _TOP | _permuted(numbers & _ALL, seed, lap)
    return [int(value) for value in found]


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
