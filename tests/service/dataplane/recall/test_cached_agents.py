"""Memories kept in a process: never stale, whoever changed them; never another tenant's; bounded."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnloop_dataplane.ranking.agent_cache import Kept
from learnloop_dataplane.ranking.column_queries import Reading
from learnloop_dataplane.recall.cache_warming import warm
from learnloop_dataplane.recall.cached_agents import Reader

from ..conftest import Api, running, settings
from .test_recall import ask, columns, indexed, store


@pytest.fixture
async def replica(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    """Another process's worth of service on the same database."""
    async with running(**settings(dsn, tmp_path)) as started:
        yield started


def texts_of(answer: dict[str, Any]) -> set[str]:
    return {hit["content"]["text"] for hit in answer["memories"]}


async def test_what_one_replica_stored_another_recalls_at_once(api: Api, replica: Api) -> None:
    await store(api, "pair", ["the first word"])
    assert texts_of(await ask(replica, "pair", "word")) == {"the first word"}
    for number in range(30):
        writer, reader = (api, replica) if number % 2 else (replica, api)
        [identity] = await store(writer, "pair", [f"word number n{number}"])
        [best] = (await ask(reader, "pair", f"n{number}", k=1))["memories"]
        assert best["id"] == identity


async def test_what_one_replica_ends_pins_or_deletes_another_stops_recalling(api: Api, replica: Api) -> None:
    ids = await store(api, "ends", ["fact one", "fact two", "fact three"], origin="web/x")
    await indexed(api, "ends", 3)
    assert len((await ask(replica, "ends", "fact"))["memories"]) == 3
    body = {"agent_id": "ends", "ids": [ids[0]]}
    await api.call("POST", "/api/v1/memory/delete", json=body)
    assert texts_of(await ask(replica, "ends", "fact")) == {"fact two", "fact three"}
    body = {"agent_id": "ends", "origin": "web/x", "action": "quarantine"}
    await api.call("POST", "/api/v1/memory/origins", json=body)
    assert texts_of(await ask(replica, "ends", "fact")) == set()
    await api.call("POST", "/api/v1/memory/origins", json=body | {"action": "release"})
    assert texts_of(await ask(replica, "ends", "fact")) == {"fact two", "fact three"}


async def test_a_transaction_older_than_the_copy_is_seen_when_it_commits(api: Api, replica: Api) -> None:
    [identity] = await store(api, "slow", ["a slow fact"])
    await indexed(api, "slow", 1)
    async with api.db.tenant("team-a") as connection:
        await connection.execute("UPDATE memory_vec SET utility = 0.75 WHERE agent_id = 'slow'")
        await store(replica, "slow", ["a quick fact"])
        await indexed(replica, "slow", 2)
        await ask(replica, "slow", "fact")
        kept = replica.memory.reader.peek("team-a", "slow")
    await ask(replica, "slow", "fact")
    assert kept is not None
    place = [str(kept.columns.uuid(index)) for index in range(len(kept))].index(identity)
    assert kept.columns.utility[place] == 0.75


async def test_copies_of_one_name_in_two_namespaces_are_two(api: Api) -> None:
    await store(api, "twin", ["ours alone"])
    assert texts_of(await ask(api, "twin", "alone")) == {"ours alone"}
    assert texts_of(await ask(api, "twin", "alone", namespace="team-b")) == set()
    assert texts_of(await ask(api, "twin", "alone")) == {"ours alone"}


async def test_a_copy_answers_for_the_types_asked_and_lets_expired_ones_go(api: Api) -> None:
    for ttl in (1, 8, 64):  # a busy machine may be over the first before it has asked
        agent, begun = f"mixed-{ttl}", time.monotonic()
        await store(api, agent, ["how to brew tea"], memory_type="procedural")
        await store(api, agent, ["tea grows on hills"])
        await store(api, agent, ["tea is on the stove"], memory_type="working", ttl_seconds=ttl)
        known = await ask(api, agent, "tea")
        if time.monotonic() - begun < ttl:
            break
    assert len(known["memories"]) == 3
    assert texts_of(await ask(api, agent, "tea", memory_types=["procedural"])) == {"how to brew tea"}
    await asyncio.sleep(ttl + 0.1)
    assert texts_of(await ask(api, agent, "tea")) == {"how to brew tea", "tea grows on hills"}


async def test_an_agent_too_large_to_keep_is_scanned_by_postgresql(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, cache_mib=0)) as api:
        await store(api, "vast", [f"grain n{index}" for index in range(40)])
        answer = await ask(api, "vast", "n17", k=1)
        assert texts_of(answer) == {"grain n17"}
        assert (answer["plan"], answer["searched"]) == ("exact", 40)
        assert api.memory.reader.peek("team-a", "vast") is None


async def test_a_copy_and_a_scan_rank_alike(api: Api) -> None:
    rng = np.random.default_rng(5)
    animals = ("heron", "otter", "badger", "lynx", "marten", "ibex")
    await store(api, "alike", [f"{' '.join(rng.choice(animals, 3))} n{i}" for i in range(80)], session_id="s")
    await indexed(api, "alike", 80)
    for context in ("otter and lynx", "heron n7", "nothing of it"):
        kept = await ask(api, "alike", context)
        scanned = await ask(api, "alike", context, as_of="2100-01-01T00:00:00Z")
        assert [hit["id"] for hit in kept["memories"]] == [hit["id"] for hit in scanned["memories"]]
        scores = [hit["score"] for hit in kept["memories"]]
        assert scores == pytest.approx([hit["score"] for hit in scanned["memories"]], abs=1e-3)


async def test_every_memory_of_a_large_import_is_recalled_at_once(api: Api) -> None:
    await store(api, "import", ["the first of all"])
    await ask(api, "import", "first")
    await store(api, "import", [f"grain number n{index}" for index in range(4000)])
    answer = await ask(api, "import", "n3210", k=1)
    assert (answer["searched"], texts_of(answer)) == (4001, {"grain number n3210"})


def test_what_is_alike_in_all_memories_is_kept_once_until_one_differs() -> None:
    alike = columns(["a b"] * 1000, [7] * 1000).compact()
    assert (alike.threads.strides, alike.utility.strides) == ((0,), (0,))
    rows = np.array([3])
    other = columns(["a b"] * 1000, [7] * 1000)
    changed = alike.changed(rows, replace(other.take(rows), utility=np.array([0.5], np.float32)))
    assert changed.utility.sum() == changed.utility[3] == 0.5
    assert alike.utility.sum() == 0
    rng = np.random.default_rng(1)
    kept = Kept(answer(rng.normal(size=(5, 384)).astype(np.float32) / 20, np.ones(5, bool)), time.monotonic(), 384)
    late = answer(rng.normal(size=(5, 384)).astype(np.float32) / 20, np.ones(5, bool)) | {"n": 5, "gone": False}
    late["ends"] = np.array([np.inf, 1.0, np.inf, np.inf, np.inf], ">f8").tobytes()
    assert kept.update(late, time.monotonic())
    assert len(kept.view((1,), kept.now()).columns) == 4, "the second has ended, and no other"
    assert kept.columns.created.tolist() == [0.0] * 5


@pytest.mark.parametrize("memories", [0, 1, 3000])
@pytest.mark.parametrize("filled", [0, 5, 384])
def test_cosines_are_those_of_brute_force_however_few_dimensions_are_asked(memories: int, filled: int) -> None:
    rng = np.random.default_rng(memories + filled)
    vectors = rng.normal(size=(memories, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    known = np.arange(memories) % 7 != 3
    asked = np.zeros(384, np.float32)
    asked[rng.choice(384, filled, replace=False)] = rng.normal(size=filled)
    kept = Kept(answer(vectors, known), time.monotonic(), 384)
    cosines = kept.cosines(kept.view((1,), kept.now()), asked)
    assert np.isnan(cosines).tolist() == (~known).tolist(), "a memory without a vector of this embedder has none"
    assert cosines[known] == pytest.approx(vectors[known] @ asked, abs=2e-3)


def answer(vectors: Any, known: Any) -> dict[str, Any]:
    """What PostgreSQL says of memories with these vectors, as the reader asks for it."""
    n = len(vectors)
    head = np.full((n, 2), (384, 0), ">u2")
    halves = np.concatenate([head, vectors.astype(">f2").view(">u2")], axis=1)[known].astype(">u2")
    return {
        "ids": np.arange(16 * n, dtype=">u8").astype("u1").tobytes(),
        "terms": b"",
        "lengths": np.zeros(n, ">i4").tobytes(),
        "created": np.zeros(n, ">f8").tobytes(),
        "worth": np.zeros(2 * n, ">f4").tobytes(),
        "threads": np.zeros(n, ">i8").tobytes(),
        "kinds": np.ones(n, ">i2").tobytes(),
        "begins": np.zeros(n, ">f8").tobytes(),
        "ends": np.full(n, np.inf, ">f8").tobytes(),
        "known": known.astype("u1").tobytes(),
        "vectors": halves.tobytes(),
        "snapshot": "1:1:",
        "now": time.time(),
        "pending": None,
        "ranker": None,
    }


async def test_a_large_agent_read_in_parts_is_whole_though_others_write_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop_dataplane.ranking.column_queries.LARGE", 20)
    monkeypatch.setattr("learnloop_dataplane.ranking.column_queries.PART", 16)
    ids = await store(api, "parts", [f"pebble n{index}" for index in range(100)])
    await indexed(api, "parts", 100)
    reading, after_each = Reading(api.db, api.memory.embedder), [0]
    fetch = api.db.fetch_as

    async def meanwhile(namespace: str, statement: str, *arguments: Any) -> Any:
        rows = await fetch(namespace, statement, *arguments)
        if "LIMIT $5" in statement and arguments[0] == "parts" and not after_each[0]:
            after_each[0] = 1
            await api.call("POST", "/api/v1/memory/delete", json={"agent_id": "parts", "ids": ids[90:]})
            await store(api, "parts", ["pebble late"])
            await indexed(api, "parts", 91)
        return rows

    monkeypatch.setattr(api.db, "fetch_as", meanwhile)
    kept = await reading.all("team-a", "parts", 100)
    assert after_each == [1]
    found = {str(kept.columns.uuid(index)) for index in range(len(kept))}
    assert (len(kept), len(found), found & set(ids[90:])) == (91, 91, set())
    assert kept.columns.postings.rows == 91


async def test_after_a_restart_the_agents_asked_lately_are_read_while_there_is_room(api: Api) -> None:
    for agent in ("warm-a", "warm-b", "warm-c"):
        await store(api, agent, [f"{agent} knows number n{index}" for index in range(40)])
        await indexed(api, agent, 40)
    for agent in ("warm-b", "warm-a"):
        await ask(api, agent, "number")
    await api.memory.recall_log.flush()
    db, embedder = api.db, api.memory.embedder
    reader = Reader(db, embedder, 2**20)
    assert await warm(db, reader) >= 2
    assert reader.peek("team-a", "warm-a") is not None
    assert reader.peek("team-a", "warm-c") is None, "nobody asked for it"
    small = Reader(db, embedder, 60_000)  # one of them
    await warm(db, small)
    assert (small.peek("team-a", "warm-a") is None, small.peek("team-a", "warm-b") is None) == (False, True)
    for too_small in (0, 1000):  # 0: nothing is kept at all, as LEARNLOOP_CACHE_MIB=0 says
        assert await warm(db, Reader(db, embedder, too_small)) == 0
