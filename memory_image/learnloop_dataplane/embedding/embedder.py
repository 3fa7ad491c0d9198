"""The embedder port."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
FEW = 4  # texts that are quicker one by one


class Embedder(Protocol):
    """Turns texts into unit vectors. `name` is stored with every vector: those of two embedders are never compared."""

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One float32 vector of length 1 for each text, or all zero for a text without words.

        Raises:
            Unavailable: the model does not answer; recall goes by words meanwhile.
        """
        ...
