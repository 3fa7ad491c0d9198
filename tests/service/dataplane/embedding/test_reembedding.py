"""A new embedder is staged next to the old one, which answers until all vectors are there, and can come back."""

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from os import getpid
from unittest.mock import AsyncMock

import numpy as np
import pytest
from numpy.typing import NDArray

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.memories import indexing
from learnloop_dataplane.memories.indexing import Indexing
from learnloop_dataplane.stems import Analyzer

from ..conftest import Api, eventually, running, settings, superuser
from ..recall.test_recall import ask, store
from .test_embedders import model

COUNT = "SELECT count(*) FROM memory_index WHERE $1 IN (embedder, next_embedder)"
MEMORIES = 700


async def test_a_new_embedder_takes_over_when_its_vectors_are_there_and_the_old_one_comes_back(dsn, tmp_path):
    old = f"onnx://{model(tmp_path / 'old')}"
    new = f"onnx://{model(tmp_path / 'new', dimensions=12)}"

    async def in_use(api: object, setting: str, name: str) -> None:
        async def switched() -> bool:
            async with api.db.tenant("team-a") as connection:
                used = await connection.fetchval(indexing._IN_USE, "team-a")
                return bool(used == name and await connection.fetchval(COUNT, name) == MEMORIES)

        await eventually(switched)

    async with running(**settings(dsn, tmp_path, embedder=old, sweep_seconds=0.1)) as api:
        ids = await store(api, "changer", [f"the cat number {number}" for number in range(MEMORIES - 1)])
        await store(api, "changer", ["Always name 2 cats."], speaker="user")
        first = api.memory.indexing._embedder.name
        await in_use(api, old, first)
        before = (await ask(api, "changer", "the cat number 123"))["memories"]
        assert (before[0]["id"], "instruction" in [hit["why"] for hit in before]) == (ids[123], True)
    values = settings(dsn, tmp_path, embedder=new, embedder_before=old, sweep_seconds=30)
    async with running(**values) as api:
        assert (await api.memory.indexing.embedder("team-a")).name == first
        half = (await ask(api, "changer", "the cat number 123"))["memories"]
        assert [hit["id"] for hit in half] == [hit["id"] for hit in before], "half migrated, it answers as before"
        while await api.memory.indexing.embed("team-a"):
            pass
        await in_use(api, new, api.memory.indexing._embedder.name)
        after = (await ask(api, "changer", "the cat number 123"))["memories"]
        assert (after[0]["id"], "instruction" in [hit["why"] for hit in after]) == (ids[123], True)
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
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        vectors = []
        self.texts += texts
        for text in texts:
            vector = np.zeros(self.dimensions, np.float32)
            vector[int(re.findall(r"\d+", text)[0]) % self.dimensions] = 1.0 if text.endswith("?") else self._replies
            vectors.append(vector)
        return vectors


async def test_a_replica_that_waits_for_its_embedder_holds_no_connection_and_hides_no_row(api: Api, dsn: str) -> None:
    await store(api, "waiter", [f"box {number} holds lamps" for number in range(30)])
    slow = ByNumber("new", 1.0)
    slow.embed = AsyncMock(side_effect=partial(asyncio.sleep, 3600))
    waiting = asyncio.create_task(Indexing(api.db, Analyzer(), slow).embed("team-a"))
    await eventually(AsyncMock(side_effect=lambda: slow.embed.called))

    async def free() -> bool:
        held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        async with superuser(dsn) as watcher:
            return await watcher.fetchval(held) == 0

    await eventually(free, seconds=30)
    while await Indexing(api.db, Analyzer(), ByNumber("new", 1.0)).embed("team-a"):
        pass
    async with api.db.tenant("team-a") as connection:
        assert await connection.fetchval(indexing._IN_USE, "team-a") == "new"
        assert await connection.fetchval(f"SELECT ({COUNT}) = count(*) FROM memory_index", "new")
    waiting.cancel()


async def test_two_replicas_embed_the_same_rows_of_a_young_database_without_a_deadlock(migrated, tmp_path):
    async with running(**settings(migrated(f"young_{getpid()}"), tmp_path)) as api:
        await store(api, "both", [f"box {number} holds lamps" for number in range(400)])
        for number in range(8):
            replicas = [Indexing(api.db, Analyzer(), ByNumber(f"new-{number}", 1.0)) for _ in range(4)]
            await asyncio.gather(*(replica.embed("team-a") for replica in replicas))
            async with api.db.tenant("team-a") as connection:
                row = await connection.fetchrow(indexing._IN_USE, "team-a")
            assert row["embedder"] == f"new-{number}"
            assert number == 0 or row["before"] == f"new-{number - 1}", "the way back stays open"


async def test_an_embedder_that_finds_less_of_the_agents_own_questions_is_refused(api, caplog):
    worse, better, other = ByNumber("worse", -1.0), ByNumber("better", 1.0), ByNumber("other", -1.0)

    async def in_use(embedder: ByNumber, before: ByNumber | None) -> str:
        made = Indexing(api.db, Analyzer(), embedder, before)
        while await made.embed("team-a"):
            pass
        used = await made.embedder("team-a")
        return used.name

    assert await in_use(worse, None) == "worse", "before any question"
    talk = [text for number in range(40) for text in (f"what is in box {number}?", f"box {number} holds lamps")]
    await store(api, "talker", talk, session_id="s")
    assert await in_use(better, worse) == "better"
    assert await in_use(other, better) == "better"
    assert "keeps embedder better" in caplog.text
    await store(api, "talker", ["box 7 is gone"])
    assert await in_use(other, better) == "better"
    assert [*other.texts, *better.texts].count("box 7 is gone") == 2, "once by each"
    await store(api, "talker", ["box 8 is gone"])
    better.embed = AsyncMock(side_effect=Unavailable("better"))
    assert await in_use(worse, better) == "worse", "the way back is always open"


@pytest.mark.parametrize("erased", [False, True])
async def test_a_refused_embedder_is_compared_again_after_a_rest_or_an_erasure(api, monkeypatch, erased):
    first, following = ByNumber("first", 1.0), ByNumber("following", 1.0)
    body = {"agent_id": "rested", "memory_type": "semantic", "content": {"text": "box 1"}}
    await api.call("POST", "/api/v1/memory/store", 201, json=body, namespace=(space := f"erased-{erased}".lower()))
    await Indexing(api.db, Analyzer(), first).embed(space)
    made = Indexing(api.db, Analyzer(), following, first)
    compared = AsyncMock(side_effect=[(1.0, 0.0, 99), (0.0, 1.0, 99)])
    monkeypatch.setattr(made, "_compared", compared)
    for _ in range(3):
        await made.embed(space)
    assert ((await made.embedder(space)).name, compared.call_count) == ("first", 1)
    assert f"{space} keeps embedder first: of 99 own questions following finds 0.000" in made.refusals[space]
    if erased:
        await api.call("POST", "/api/v1/erasure", json={"agent_id": "rested"}, namespace=space)
    else:
        monkeypatch.setattr(made, "_rests", {space: (0.0, 1.0)})
    await made.embed(space)
    assert (await made.embedder(space)).name == "following"
    await made.embed(space)
    assert made.refusals == {}


async def test_a_refused_embedder_is_counted_and_named_where_the_service_says_what_is_degraded(api):
    for count in 1, 0:
        api.memory.indexing.refusals = {"team-a": "team-a keeps embedder first"} if count else {}
        degraded = (await api.call("GET", "/readyz"))["degraded"]
        assert degraded.get("embedder", "")[:12] == "1 namespaces"[: 12 * count], "no tenant is named"
        assert f"learnloop_embedder_refused_namespaces {count}.0" in (await api.call("GET", "/metrics")).text


async def test_an_embedder_is_not_refused_where_the_one_before_cannot_answer(api, monkeypatch):
    await store(api, "alone", ["box 1"])
    await Indexing(api.db, Analyzer(), ByNumber("first", 1.0)).embed("team-a")
    made = Indexing(api.db, Analyzer(), ByNumber("following", 1.0))
    monkeypatch.setattr(made, "_compared", AsyncMock(return_value=(1.0, 0.0, 99)))
    await made.embed("team-a")
    assert (await made.embedder("team-a")).name == "following"
