"""What a vector store overlooked is told by memories that were read for another reason."""

from typing import Any
from uuid import UUID

import numpy as np
import pytest

from learnloop_dataplane.recall.large_agents import ROUNDING, overlooked
from learnloop_dataplane.vectors.vector_store import Near

PROPOSED = [Near(UUID(int=number), 0.9 - 0.01 * number) for number in range(30)]
TENTH = PROPOSED[9].similarity
OTHER = UUID(int=1000)


def row(*read: tuple[UUID, float]) -> dict[str, Any]:
    """Memories and their cosines, as PostgreSQL packs them."""
    cosines = np.array([cosine for _, cosine in read], ">f4")
    return {"ids": b"".join(identity.bytes for identity, _ in read), "vector": cosines.tobytes()}


@pytest.mark.parametrize(
    ("cosine", "told"), [(TENTH + 0.01, True), (TENTH + ROUNDING / 2, False), (TENTH - 0.01, False), (np.nan, False)]
)
def test_a_memory_nearer_than_the_tenth_that_was_proposed_shows_it(cosine: float, told: bool) -> None:
    assert overlooked(PROPOSED, row(*PROPOSED, (OTHER, cosine)), []) is told


def test_what_the_store_proposed_or_need_not_know_yet_shows_nothing() -> None:
    assert not overlooked(PROPOSED, row(*PROPOSED), [])
    assert not overlooked(PROPOSED, row(*PROPOSED, (OTHER, 0.95)), [OTHER])


def test_a_store_that_proposed_nobody_overlooked_whatever_there_is() -> None:
    assert overlooked([], row((OTHER, 0.1)), [])
    assert not overlooked([], row((OTHER, np.nan)), [])
    assert not overlooked([], {"ids": None, "vector": None}, [])
