"""A new embedder is staged beside the old one, which answers until all vectors are there, and can come back."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from learnloop_dataplane.memories import indexing
from learnloop_dataplane.memories.indexing import Indexing
from learnloop_dataplane.text import Analyzer

from ..conftest import Api, eventually, running, settings
from ..recall.test_recall import ask, store
from .test_embedders import model

COUNT = "SELECT count(*) FROM memory_index WHERE $1 IN (embedder, next_embedder)"
MEMORIES = 700


async def test_a_new_embedder_takes_over_when_its_vectors_are_there_and_the_old_one_comes_back(
    dsn: str, tmp_path: Path
) -> None:
    old = f"onnx://{model(tmp_path / 'old')}"
    new = f"onnx://{model(tmp_path / 'new', dimensions=12)}"

    async def in_use(api: object, setting: str, name: str) -> None:
        async def switched() -> bool:
            async with api.db.tenant("team-a") as connection:  # type: ignore[attr-defined]
                used = await connection.fetchval(indexing._IN_USE, "team-a")
                return bool(used == name and await connection.fetchval(COUNT, name) == MEMORIES)

        await eventually(switched)

    async with running(**settings(dsn, tmp_path, embedder=old, sweep_seconds=0.1)) as api:
        ids = await store(api, "changer", [f"the cat number {number}" for number in range(MEMORIES)])
        first = api.memory.indexing._embedder.name
        await in_use(api, old, first)
        before = (await ask(api, "changer", "the cat number 123"))["memories"]
        assert before[0]["id"] == ids[123]
    values = settings(dsn, tmp_path, embedder=new, embedder_before=old, sweep_seconds=30)
    async with running(**values) as api:
        assert (await api.memory.indexing.embedder("team-a")).name == first
        half = (await ask(api, "changer", "the cat number 123"))["memories"]
        assert [hit["id"] for hit in half] == [hit["id"] for hit in before], "half migrated, it answers as before"
        while await api.memory.indexing.embed("team-a"):
            pass
        await in_use(api, new, api.memory.indexing._embedder.name)
        assert (await ask(api, "changer", "the cat number 123"))["memories"][0]["id"] == ids[123]
    async with running(**settings(dsn, tmp_path, embedder=old, embedder_before=new, sweep_seconds=0.1)) as api:
        await in_use(api, old, first)
        back = (await ask(api, "changer", "the cat number 123"))["memories"]
        assert [hit["id"] for hit in back] == [hit["id"] for hit in before]


class ByNumber:
    """One direction for each number in a text; replies point where `replies` says."""

    dimensions = 64

    def __init__(self, name: str, replies: float) -> None:
        self.name = name
        self._replies = replies

    async def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        vectors = []
        for text in texts:
            vector = np.zeros(self.dimensions, np.float32)
            vector[int(re.findall(r"\d+", text)[0]) % self.dimensions] = 1.0 if text.endswith("?") else self._replies
            vectors.append(vector)
        return vectors

    async def close(self) -> None:
        return


async def test_an_embedder_that_finds_less_of_the_agents_own_questions_is_refused(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    talk = [text for number in range(40) for text in (f"what is in box {number}?", f"box {number} holds lamps")]
    ids = await store(api, "talker", talk, session_id="s")
    assert len(ids) == 80
    old, worse, better = ByNumber("old", 1.0), ByNumber("worse", -1.0), ByNumber("better", 1.0)

    async def in_use(embedder: ByNumber, before: ByNumber | None) -> str:
        made = Indexing(api.db, Analyzer(), embedder, before)
        while await made.embed("team-a"):
            pass
        used = await made.embedder("team-a")
        assert used is not None
        return used.name

    assert await in_use(old, None) == "old"
    assert await in_use(worse, old) == "old"
    assert "keeps embedder old" in caplog.text
    assert await in_use(better, old) == "better"
