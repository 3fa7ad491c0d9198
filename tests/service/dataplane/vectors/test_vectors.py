"""Both vector stores keep one contract, each on its real server; and Weaviate may go, come back, and lose its disk."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from learnloop_dataplane.embedding.embedder import HashingEmbedder
from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.ranking.memory_types import ALL_TYPES
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.vectors import pgvector
from learnloop_dataplane.vectors.vector_store import VectorStore
from testing.servers.weaviate_server import KEY, Weaviate, own_weaviate

from ..conftest import Api, eventually, running, settings, superuser
from ..recall.test_recall import ask, indexed, invented, store

terms = Analyzer().terms

pytestmark = pytest.mark.timeout(1800)  # the first to need Weaviate on a machine builds it

NAMESPACE = "team-a"


@pytest.fixture(scope="module")
def weaviate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weaviate]:
    with own_weaviate(tmp_path_factory.mktemp("weaviate")) as server:
        yield server


def through(weaviate: Weaviate) -> dict[str, Any]:
    """Settings of a service that uses this server."""
    return {"weaviate_url": weaviate.url, "weaviate_grpc": weaviate.grpc, "weaviate_key": KEY}


@pytest.fixture
def dsn(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Each test has agents of its own."""
    return migrated(f"vectors_{abs(hash(request.node.name))}_{os.getpid()}")


@pytest.fixture(params=["pgvector", "weaviate"])
async def api(request: pytest.FixtureRequest, dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service with each of the stores. No agent is large, so that the store holds what a test has it hold."""
    more = through(request.getfixturevalue("weaviate")) if request.param == "weaviate" else {}
    async with running(**settings(dsn, tmp_path, index_check_seconds=3600, **more)) as started:
        yield started


def query(text: str, **changes: Any) -> Query:
    embedder = HashingEmbedder()
    asked = Query(text, terms(text), embedder.vector(terms(text)), embedder.name, None, ALL_TYPES)
    return replace(asked, **changes)


def exact(texts: list[str], text: str) -> np.ndarray[Any, Any]:
    """The cosine of each of these with the text, float64 [n]."""
    embedder = HashingEmbedder()
    return np.stack([embedder.vector(terms(item)) for item in texts]) @ embedder.vector(terms(text))


async def held(api: Api, agent: str, texts: list[str], **changes: Any) -> list[UUID]:
    """Stores these and has the vector store take them in; returns their ids."""
    vectors: VectorStore = api.memory.vectors
    before = await vectors.count(NAMESPACE, agent)
    ids = await store(api, agent, texts, **changes)
    await indexed(api, agent, before + len(ids))
    await vectors.follow(NAMESPACE, agent)
    return [UUID(identity) for identity in ids]


async def found(api: Api, agent: str, text: str, k: int = 10, **changes: Any) -> list[UUID]:
    near = await api.memory.vectors.nearest(NAMESPACE, agent, query(text, **changes), k)
    return [item.id for item in near]


async def test_the_nearest_come_first_with_their_cosines(api: Api) -> None:
    texts = invented(1500, seed=1)
    ids = await held(api, "walker", texts)
    assert await api.memory.vectors.count(NAMESPACE, "walker") == 1500
    for text in ("violin in the museum", "bridge lamp anchor", "bakery kettle"):
        wanted = exact(texts, text)
        near = await api.memory.vectors.nearest(NAMESPACE, "walker", query(text), 10)
        similarities = [item.similarity for item in near]
        assert len(near) == 10
        assert similarities == sorted(similarities, reverse=True)
        assert similarities == pytest.approx(wanted[[ids.index(item.id) for item in near]], abs=2e-3)
        # Halves round: one within a thousandth of the tenth best may stand in for it.
        assert min(similarities) >= np.sort(wanted)[-10] - 3e-3


async def test_no_other_agent_or_namespace_is_ever_near(api: Api) -> None:
    mine = await held(api, "mine", ["the vault opens with 4711"])
    theirs = await held(api, "theirs", ["the vault opens with 4712"])
    vectors: VectorStore = api.memory.vectors
    assert (await found(api, "mine", "vault"), await found(api, "theirs", "vault")) == (mine, theirs)
    body = {"agent_id": "mine", "memory_type": "semantic", "content": {"text": "the vault of team b"}}
    stored = await api.call("POST", "/api/v1/memory/store", 201, namespace="team-b", json=body)
    await vectors.follow("team-b", "mine")
    near = await vectors.nearest("team-b", "mine", query("vault"), 10)
    assert [str(item.id) for item in near] == [stored["id"]]
    assert (await vectors.known("team-b"), await vectors.known(NAMESPACE)) == (["mine"], ["mine", "theirs"])
    await vectors.forget(NAMESPACE, "theirs")
    assert await found(api, "mine", "vault") == mine


async def test_only_the_types_and_the_instant_asked_for_are_near(api: Api) -> None:
    [lamp] = await held(api, "diary", ["the lamp is in the shed"])
    [old] = await held(api, "diary", ["the lamp was in the attic"], ttl_seconds=3600)
    [task] = await held(api, "diary", ["mend the lamp"], memory_type="procedural")
    assert set(await found(api, "diary", "lamp")) == {lamp, old, task}
    assert await found(api, "diary", "lamp", types=("procedural",)) == [task]
    assert set(await found(api, "diary", "lamp", at=datetime.now(UTC) + timedelta(hours=2))) == {lamp, task}
    assert await found(api, "diary", "lamp", at=datetime.now(UTC) - timedelta(hours=1)) == []
    assert await found(api, "diary", "lamp", k=1, types=("procedural",)) == [task]


async def test_what_ended_or_was_deleted_is_near_no_longer(api: Api) -> None:
    ids = await held(api, "forgetful", invented(40, seed=2))
    vectors: VectorStore = api.memory.vectors
    gone = ids[:5]
    body = {"agent_id": "forgetful", "ids": [str(identity) for identity in gone]}
    await api.call("POST", "/api/v1/memory/delete", json=body)
    await api.call("POST", "/api/v1/memory/forget", json={"agent_id": "forgetful", "budget": 20})
    await vectors.follow(NAMESPACE, "forgetful")
    near = await found(api, "forgetful", "harbour violin", k=40)
    assert len(near) == 20
    assert not set(gone) & set(near)
    assert await vectors.count(NAMESPACE, "forgetful") == 35, "what was forgotten can come back, what was deleted not"
    assert await vectors.follow(NAMESPACE, "forgetful") == 0, "nothing has changed since"


async def test_nothing_of_a_forgotten_agent_is_left(api: Api) -> None:
    await held(api, "leaver", invented(30, seed=3))
    vectors: VectorStore = api.memory.vectors
    assert "leaver" in await vectors.known(NAMESPACE)
    await api.call("POST", "/api/v1/erasure", json={"agent_id": "leaver"})
    assert await vectors.known(NAMESPACE) == []
    assert await vectors.count(NAMESPACE, "leaver") == 0
    await vectors.forget(NAMESPACE, "leaver")


async def test_few_of_a_type_are_all_near_however_many_others_are_nearer(api: Api) -> None:
    await held(api, "busy", invented(1500, seed=14))
    few = await held(api, "busy", ["mend the lamp", "paint the boat", "feed the heron"], memory_type="procedural")
    assert set(await found(api, "busy", "violin in the museum", types=("procedural",))) == set(few)


async def test_an_index_with_other_parameters_is_replaced_and_answers_until_then(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(**settings(dsn, tmp_path, index_check_seconds=3600)) as api:
        with monkeypatch.context() as before:
            before.setattr(pgvector, "M", 16)
            before.setattr(pgvector, "EF_CONSTRUCTION", 96)
            ids = await held(api, "walker", invented(400, seed=15))
            [old] = await indexes(dsn)
        assert old.endswith("_m16_ef96")
        async with superuser(dsn) as connection:  # as it was called before names said the parameters
            named = old.removesuffix("_m16_ef96")
            await connection.execute(f"ALTER INDEX {old} RENAME TO {named}")
        answers: list[list[UUID]] = []
        over = asyncio.Event()

        async def asks() -> None:
            while not over.is_set():
                answers.append(await found(api, "walker", "violin in the museum", k=5))
                await store(api, "other", ["written meanwhile"])

        asking = asyncio.create_task(asks())
        assert await api.memory.vectors.follow(NAMESPACE, "walker") == 400
        over.set()
        await asking
        [new] = await indexes(dsn)
        assert new == f"{named}_m{pgvector.M}_ef{pgvector.EF_CONSTRUCTION}"
        assert all(len(answer) == 5 and set(answer) <= set(ids) for answer in answers)
        assert await api.memory.vectors.follow(NAMESPACE, "walker") == 0, "nothing is left to build"
        assert await api.memory.vectors.known(NAMESPACE) == ["walker"]


async def indexes(dsn: str) -> list[str]:
    """The valid HNSW indexes, of whichever agents."""
    async with superuser(dsn) as connection:
        rows = await connection.fetch(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE starts_with(c.relname, 'hnsw_') AND i.indisvalid"
        )
    return [row["relname"] for row in rows]


async def test_recall_goes_through_the_store_and_ranks_what_postgresql_still_has(
    weaviate: Weaviate, dsn: str, tmp_path: Path
) -> None:
    values = settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2, **through(weaviate))
    async with running(**values) as api:
        texts = invented(1200, seed=4)
        await store(api, "large", texts)
        await eventually(lambda: _planned(api, "weaviate"))
        answer = await ask(api, "large", "violin museum mirror", weights={"vector": 1})
        assert (answer["plan"], answer["searched"], answer["degraded"]) == ("weaviate", 1200, [])
        wanted = exact(texts, "violin museum mirror")
        places = [texts.index(memory["content"]["text"]) for memory in answer["memories"]]
        assert wanted[places].min() >= np.sort(wanted)[-10] - 3e-3
        first = answer["memories"][0]["id"]
        async with api.db.tenant(NAMESPACE) as connection:  # behind the back of the store
            await connection.execute("DELETE FROM agent_memories WHERE id = $1", UUID(first))
        again = await ask(api, "large", "violin museum mirror", weights={"vector": 1})
        assert first not in [memory["id"] for memory in again["memories"]]


async def test_while_weaviate_is_away_nothing_is_lost_and_recall_says_so(
    weaviate: Weaviate, dsn: str, tmp_path: Path
) -> None:
    values = settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2, **through(weaviate))
    async with running(**values) as api:
        await store(api, "large", invented(600, seed=5))
        await eventually(lambda: _planned(api, "weaviate"))
        weaviate.kill()
        try:
            [late] = await store(api, "large", ["the quartz heron sings"])
            answer = await ask(api, "large", "quartz heron")
            assert answer["memories"][0]["id"] == late
            assert (answer["plan"], answer["degraded"]) == ("nearest", ["vector store"])
            with pytest.raises((StoreAway, Unavailable)):
                await api.memory.vectors.forget(NAMESPACE, "large")
            refused = await api.call("POST", "/api/v1/erasure", 503, json={"agent_id": "large"})
            assert "ask again" in refused["error"]["message"]
            await eventually(lambda: _degraded(api, "Weaviate"))
            said = (await api.call("GET", "/metrics")).text
            assert "learnloop_vector_store_up 0.0" in said
            [lag] = [line for line in said.splitlines() if line.startswith("learnloop_vector_store_lag_seconds{")]
            assert lag.split("{")[1].startswith('namespace="team-a"')
            assert 0 < float(lag.split()[-1]) < 600
        finally:
            weaviate.start()
        await store(api, "other", ["stored after the kill"] + invented(600, seed=6))
        await eventually(lambda: _planned(api, "weaviate", agent="other"))
        await eventually(lambda: _erased(api))
        await eventually(lambda: _degraded(api, None))
        assert "learnloop_vector_store_up 1.0" in (await api.call("GET", "/metrics")).text
        assert await api.memory.vectors.count(NAMESPACE, "large") == 0
        assert await api.memory.vectors.count(NAMESPACE, "other") == 601


async def test_a_weaviate_that_lost_its_disk_is_filled_again(weaviate: Weaviate, dsn: str, tmp_path: Path) -> None:
    values = settings(dsn, tmp_path, exact_up_to=100, index_check_seconds=0.2, **through(weaviate))
    async with running(**values) as api:
        await store(api, "large", invented(300, seed=7))
        await eventually(lambda: _planned(api, "weaviate"))
        weaviate.lose_disk()
        weaviate.start()
        assert len((await ask(api, "large", "harbour lamp"))["memories"]) == 10

        async def filled() -> bool:
            await ask(api, "large", "harbour lamp")
            with suppress(StoreAway):  # it has only just begun to listen
                return bool(await api.memory.vectors.count(NAMESPACE, "large") == 300)
            return False

        await eventually(filled)
        await eventually(lambda: _planned(api, "weaviate"))


async def test_a_wrong_key_is_said_and_recall_goes_on(weaviate: Weaviate, dsn: str, tmp_path: Path) -> None:
    values = settings(dsn, tmp_path, **through(weaviate)) | {"weaviate_key": "another"}
    async with running(**values) as api:
        await store(api, "walker", ["the key is under the mat"])
        with pytest.raises(StoreAway, match="Weaviate"):
            await api.memory.vectors.follow(NAMESPACE, "walker")
        assert len((await ask(api, "walker", "key"))["memories"]) == 1


async def _planned(api: Api, plan: str, agent: str = "large") -> bool:
    return bool((await ask(api, agent, "x"))["plan"] == plan)


async def _degraded(api: Api, said: str | None) -> bool:
    """Does the readiness probe, which must succeed all the while, say this of the vector store?"""
    degraded = (await api.call("GET", "/readyz"))["degraded"]
    return said in degraded.get("vector store", "") if said else degraded == {}


async def _erased(api: Api) -> bool:
    answer = await api.client.post(
        "/api/v1/erasure", json={"agent_id": "large"}, headers={"x-learnloop-namespace": NAMESPACE}
    )
    await asyncio.sleep(0.2)
    return answer.status_code == 200


async def test_a_weaviate_killed_under_load_costs_nobody_an_answer_and_has_everything_afterwards(
    weaviate: Weaviate, dsn: str, tmp_path: Path
) -> None:
    values = settings(dsn, tmp_path, exact_up_to=100, index_check_seconds=0.2, **through(weaviate))
    async with running(**values) as api:
        await store(api, "busy", invented(200, seed=10))
        await eventually(lambda: _planned(api, "weaviate", agent="busy"))
        over = asyncio.Event()
        stored: list[str] = []
        plans: set[str] = set()

        async def writes() -> None:
            while not over.is_set():
                number = len(stored)
                texts = [f"{text} late{number}" for text in invented(5, seed=1000 + number)]
                stored.extend(await store(api, "busy", texts))
                await asyncio.sleep(0.02)  # some hundred a second; faster than Weaviate takes them it never catches up

        async def reads() -> None:
            while not over.is_set():
                answer = await ask(api, "busy", "violin museum mirror")
                plans.add(answer["plan"])
                assert len(answer["memories"]) == 10
                if stored:
                    newest = f"late{(len(stored) // 5 - 1) * 5}"
                    found = await ask(api, "busy", newest, weights={"lexical": 1})
                    assert newest in found["memories"][0]["content"]["text"], "what was acknowledged is found"

        load = [asyncio.create_task(work()) for work in (writes, reads)]
        for _ in range(2):
            await asyncio.sleep(0.5)
            weaviate.kill()
            await eventually(lambda: _degraded(api, "Weaviate"))
            await asyncio.to_thread(weaviate.start)
            await eventually(lambda: _degraded(api, None))
        over.set()
        await asyncio.gather(*load)
        assert plans >= {"nearest"}
        vectors = api.memory.vectors

        async def whole() -> bool:
            return bool(await vectors.count(NAMESPACE, "busy") == 200 + len(stored))

        await eventually(whole)
        async with api.db.tenant(NAMESPACE) as connection:
            rows = await connection.fetchval("SELECT count(*) FROM agent_memories WHERE agent_id = 'busy'")
        assert rows == 200 + len(stored)
        await eventually(lambda: _planned(api, "weaviate", agent="busy"))
