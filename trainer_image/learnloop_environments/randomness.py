"""Random numbers that are a pure function of (seed, purpose, counters).

Nothing here has state, so nothing is lost at a checkpoint; and because a number belongs to an *environment* and not
to a rank, one rank and many ranks draw the same numbers. The mixer is SplitMix64's finaliser
(Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

import enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_TOP = np.uint64(1 << 63)


class Purpose(enum.IntEnum):
    """The use of a number: two purposes never share a stream."""

    EPISODE = 1
    START = 2
    ACTION = 3
    EXPLORE = 4
    SHUFFLE = 5
    REPLAY = 6
    WEIGHTS = 7
    BASELINE = 8
    BOOTSTRAP = 9
    NOISE = 10
    DYNAMICS = 11
    CONDITIONS = 12
    TASK = 13
    BEHAVIOUR = 14
    SHIELD = 15
    OFF_POLICY = 17
    MEMORY = 18


class Split(enum.IntEnum):
    """Training and held-out episodes have different seeds: the top bit of the seed says which it is."""

    TRAINING = 0
    HELD_OUT = 1


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def words(*counters: ArrayLike) -> Words:
    """64 random bits for each combination of the (broadcast) counters; at least one-dimensional."""
    state = np.zeros(1, dtype=np.uint64)
    for counter in counters:
        state = _mix((state + _GOLDEN) ^ _mix(np.atleast_1d(np.asarray(counter, dtype=np.uint64)) + _GOLDEN))
    return state


def uniforms(*counters: ArrayLike) -> NDArray[np.float64]:
    """Uniform numbers in the open interval (0, 1), 53 bits each; shape as `words`."""
    return np.asarray(((words(*counters) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def gumbels(*counters: ArrayLike) -> NDArray[np.float32]:
    """Gumbel noise: argmax(logits + noise) samples from softmax(logits) (Gumbel, 1954)."""
    return np.asarray(-np.log(-np.log(uniforms(*counters))), dtype=np.float32)


def generator(*counters: int) -> np.random.Generator:
    """A numpy generator of its own for one occasion, e.g. one epoch's shuffle."""
    return np.random.Generator(np.random.Philox(key=words(*counters, (0, 1))))


class Draws:
    """Uniform numbers in [0, 1), or standard normal ones, for numbered occasions, drawn for many occasions in one go.

    A pure function of its arguments: the block it remembers is a cache, not a state.
    """

    BLOCK = 64

    def __init__(self, shape: tuple[int, ...], *counters: int, normal: bool = False) -> None:
        self._shape, self._counters, self._normal = shape, counters, normal
        self._number, self._block = -1, np.empty(0)

    def at(self, occasion: int) -> NDArray[np.float64]:
        """The numbers of this occasion. Read only."""
        number, index = divmod(occasion, self.BLOCK)
        if number != self._number:
            random = generator(*self._counters, number)
            draw = random.standard_normal if self._normal else random.random
            self._number, self._block = number, draw((self.BLOCK, *self._shape))
        return np.asarray(self._block[index])


def episode_seeds(split: Split, seed: int, environment: ArrayLike, episode: ArrayLike) -> Words:
    """The 64-bit seed of each episode. Training seeds have the top bit clear, held-out seeds have it set."""
    bits = words(Purpose.EPISODE, seed, environment, episode) >> np.uint64(1)
    return bits | _TOP if split is Split.HELD_OUT else bits


class Starts:
    """Uniform numbers in (0, 1) that episodes start from, drawn for some episodes of an environment in one go.

    A pure function of its arguments: the blocks it remembers are a cache, not a state.
    """

    BLOCK = 16

    def __init__(self, width: int, split: Split, seed: int, members: range) -> None:
        """`width` numbers for each episode of the environments `members`."""
        self._width, self._split, self._seed = width, split, seed
        self._members = np.asarray(members, dtype=np.uint64)
        self._drawn = np.full(len(members), -1)  # the number of each environment's block
        self._draws = np.empty((width, len(members), self.BLOCK))

    def at(self, which: NDArray[np.intp], episodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Numbers [width, n] for these episodes [n] of the environments with the indices `which` [n]."""
        number, index = np.divmod(episodes, self.BLOCK)
        fresh = which[self._drawn[which] != number]
        if len(fresh):
            self._drawn[which] = number
            block = self._drawn[fresh, None] * self.BLOCK + np.arange(self.BLOCK)
            seeds = episode_seeds(self._split, self._seed, self._members[fresh, None], block)
            self._draws[:, fresh] = uniforms(Purpose.START, seeds, np.arange(self._width)[:, None, None])
        return np.asarray(self._draws[:, which, index])
