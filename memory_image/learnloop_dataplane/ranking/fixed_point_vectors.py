"""Vectors in 16-bit fixed point. Pure.

That is as exact as the `halfvec` they come from for everything a unit vector holds. numpy turns it into float32 six
times faster than IEEE halves, for which BLAS has no product. They lie dimension by dimension: a question of a few words
has a few dimensions that are not 0 where the embedder hashes, and the others need not be looked at.

What takes less was measured, too: 12 bits a number save a quarter, but need twice the time for a question and move
scores by a thousandth; only what is not 0 saves half, and needs five times the time.
"""

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.ranking.word_postings import Rows

SCALE = 32767.0
PART = 2**16  # numbers turned into float32 at a time: they stay in the second-level cache
CHUNK = 256  # vectors unpacked at a time
HEADER = 2  # words of halfvec_send before the numbers: dimensions, unused


class Fixed:
    """The vectors of n memories, and room for more; a memory without one has all zeros.

    Args:
        numbers: int16 [dimensions, room].
    """

    def __init__(self, numbers: NDArray[np.int16]) -> None:
        self._numbers = numbers

    @classmethod
    def of(cls, packed: bytes | None, known: NDArray[np.bool_], dimensions: int) -> "Fixed":
        """Those that PostgreSQL sent.

        Args:
            packed: `halfvec_send` of each that is known, one after the other.
            known: which memories have a vector, bool [n].
        """
        halves = np.frombuffer(packed or b"", "<u2").reshape(-1, HEADER + dimensions)
        numbers = np.zeros((dimensions, len(known)), np.int16)
        where = np.flatnonzero(known)
        for start in range(0, len(where), CHUNK):
            part = _FIXED.take(np.ascontiguousarray(halves[start : start + CHUNK, HEADER:].T))
            # Mostly all have one, and then they lie side by side.
            to = slice(start, start + CHUNK) if len(where) == len(known) else where[start : start + CHUNK]
            numbers[:, to] = part
        return cls(numbers)

    @property
    def room(self) -> int:
        """For how many vectors."""
        return int(self._numbers.shape[1])

    @property
    def nbytes(self) -> int:
        """Of all of it."""
        return self._numbers.nbytes

    def with_room(self, room: int) -> "Fixed":
        """The same vectors with room for so many."""
        numbers = np.zeros((len(self._numbers), room), np.int16)
        numbers[:, : self.room] = self._numbers
        return Fixed(numbers)

    def take(self, rows: Rows) -> "Fixed":
        """Only these vectors."""
        return Fixed(self._numbers[:, rows])

    def put(self, to: slice | Rows, vectors: "Fixed") -> None:
        """Puts these there."""
        self._numbers[:, to] = vectors._numbers

    def dot(self, vector: NDArray[np.float32], n: int) -> NDArray[np.float32]:
        """The inner product of each of the first n with this one, float32 [n]."""
        out = np.zeros(n, np.float32)
        filled = np.flatnonzero(vector)
        scaled = (vector[filled] / SCALE).astype(np.float32)
        which = slice(None) if len(filled) == len(self._numbers) else filled
        step = max(PART // max(len(filled), 1), CHUNK)
        for start in range(0, n, step):
            stop = min(start + step, n)
            np.dot(scaled, self._numbers[which, start:stop].astype(np.float32), out=out[start:stop])
        return out


def _fixed() -> NDArray[np.int16]:
    """What each of the 65,536 big-endian halves is as fixed point, by its two bytes read as little-endian."""
    halves = np.arange(2**16, dtype="<u2").byteswap().view(np.float16).astype(np.float32)
    fixed: NDArray[np.int16] = np.rint(np.clip(np.nan_to_num(halves), -1.0, 1.0) * SCALE).astype(np.int16)
    return fixed


_FIXED = _fixed()
