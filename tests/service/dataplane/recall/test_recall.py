"""Recall against the real PostgreSQL: exact, own index, as of then; what was stored is found at once."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.embedding.embedder import HashingEmbedder
from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.ranking.columns import Columns
from learnloop_dataplane.ranking.relevance_signals import SIGNALS, best, bm25, neighbours, signals
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.text.tokenizer import pack, term_hash
from learnloop_dataplane.vectors.vector_store import Near

from ..conftest import Api, eventually, running, settings, superuser

terms = Analyzer().terms

PLACES = ("harbour", "library", "station", "bakery", "museum", "garden", "bridge", "tower", "market", "school")
PLAN = """
EXPLAIN SELECT memory_id FROM memory_vec
WHERE namespace = 'team-a' AND agent_id = 'large' AND embedder = 'hashing-384-v3-english-2'
ORDER BY (embedding::halfvec(384)) <#> (SELECT embedding FROM memory_vec LIMIT 1) LIMIT 5
"""
THINGS = ("lamp", "ticket", "ladder", "violin", "kettle", "saddle", "anchor", "mirror", "compass", "basket")


def invented(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{' '.join(rng.choice(PLACES, 3))} {' '.join(rng.choice(THINGS, 3))} {index}" for index in range(n)]


async def store(api: Api, agent: str, texts: list[str], **changes: Any) -> list[str]:
    memories = [{"agent_id": agent, "memory_type": "semantic", "content": {"text": text}} | changes for text in texts]
    return (await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories}))["ids"]


async def ask(
    api: Api, agent: str, context: str | dict[str, Any], namespace: str = "team-a", **changes: Any
) -> dict[str, Any]:
    body = {"agent_id": agent, "context": context} | changes
    return await api.call("POST", "/api/v1/memory/retrieve", namespace=namespace, json=body)


async def indexed(api: Api, agent: str, n: int) -> None:
    async def all_in() -> bool:
        async with api.db.tenant("team-a") as connection:
            rows = "SELECT count(*) FROM memory_vec WHERE agent_id = $1 AND embedder IS NOT NULL"
            return await connection.fetchval(rows, agent) == n

    await eventually(all_in)


async def test_the_scan_ranks_as_brute_force_does(api: Api) -> None:
    rng = np.random.default_rng(7)
    texts = [f"{' '.join(rng.choice(PLACES, 3))} {' '.join(rng.choice(THINGS, 4))} {index}" for index in range(300)]
    ids = await store(api, "exact", texts)
    await indexed(api, "exact", 300)
    embedder = HashingEmbedder()
    matrix = np.stack([embedder.vector(terms(text)) for text in texts])
    for context in ("violin in the museum", "which bridge has a lamp and an anchor", "bakery bakery bakery"):
        wanted = matrix @ embedder.vector(terms(context))
        answer = await ask(api, "exact", context, weights={"vector": 1})
        found = [ids.index(memory["id"]) for memory in answer["memories"]]
        assert (answer["plan"], answer["searched"], len(found)) == ("exact", 300, 10)
        # Halves round: a memory within a thousandth of the tenth best may stand in for it.
        assert wanted[found].min() >= np.sort(wanted)[-10] - 1e-3


async def test_an_agent_that_outgrew_the_scan_gets_its_own_index(dsn: str, tmp_path: Path) -> None:
    values = settings(dsn, tmp_path, exact_up_to=500, nearest_up_to=600, index_check_seconds=0.2)
    async with running(**values) as api:
        rng = np.random.default_rng(3)
        texts = [
            f"{' '.join(rng.choice(PLACES, 2))} {' '.join(rng.choice(THINGS, 2))} n{index}" for index in range(1200)
        ]
        await store(api, "large", texts)
        await store(api, "small", texts[:50])

        async def planned() -> bool:
            return (await ask(api, "large", "x"))["plan"] == "hnsw"

        await indexed(api, "large", 1200)
        await eventually(planned)
        assert (await ask(api, "small", "harbour"))["plan"] == "exact"
        answer = await ask(api, "large", "n777 harbour lamp", k=1)
        assert answer["memories"][0]["content"]["text"] == texts[777], "a rare word finds its memory"
        embedder = HashingEmbedder()
        matrix = np.stack([embedder.vector(terms(text)) for text in texts])
        wanted = matrix @ embedder.vector(terms("violin museum mirror"))
        answer = await ask(api, "large", "violin museum mirror", weights={"vector": 1})
        found = [texts.index(memory["content"]["text"]) for memory in answer["memories"]]
        assert wanted[found].min() >= np.sort(wanted)[-10] - 1e-3
        late = await store(api, "large", ["the quartz heron sings"])
        assert (await ask(api, "large", "quartz heron"))["memories"][0]["id"] == late[0]
        async with api.db.tenant("team-a") as connection:
            await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
            await connection.execute("SET LOCAL enable_sort = off")  # of so few rows a sort may be the cheaper way
            plan = await connection.fetch(PLAN)
        assert "hnsw_" in "\n".join(row[0] for row in plan), "row-level security does not keep the index from use"


async def test_an_agent_that_outgrew_the_process_is_asked_for_its_nearest_and_gets_no_index(
    dsn: str, tmp_path: Path
) -> None:
    async with running(**settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2)) as api:
        texts = invented(1200, seed=12)
        ids = await store(api, "middling", texts)
        await indexed(api, "middling", 1200)

        async def planned() -> bool:
            return bool((await ask(api, "middling", "x"))["plan"] == "nearest")

        await eventually(planned)
        embedder = HashingEmbedder()
        matrix = np.stack([embedder.vector(terms(text)) for text in texts])
        for context in ("violin museum mirror", "harbour", "a lamp under the bridge"):
            wanted = matrix @ embedder.vector(terms(context))
            answer = await ask(api, "middling", context, weights={"vector": 1})
            found = [ids.index(memory["id"]) for memory in answer["memories"]]
            assert (answer["plan"], answer["searched"], len(found)) == ("nearest", 1200, 10)
            assert wanted[found].min() >= np.sort(wanted)[-10] - 1e-3
        [late] = await store(api, "middling", ["the quartz heron sings"])
        assert (await ask(api, "middling", "quartz heron"))["memories"][0]["id"] == late
        assert await api.memory.vectors.known("team-a") == []


async def test_nobody_waits_for_an_index_that_is_being_built(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(dsn, tmp_path, exact_up_to=500, nearest_up_to=1000, index_check_seconds=0.2)
    async with running(**values) as api:
        build, built = api.memory.vectors.follow, asyncio.Event()

        async def slow(namespace: str, agent: str) -> int:
            await built.wait()
            return await build(namespace, agent)

        monkeypatch.setattr(api.memory.vectors, "follow", slow)
        for agent, memories in (("huge", 1200), ("grown", 600)):
            await store(api, agent, invented(memories, seed=14))
            await indexed(api, agent, memories)

        async def planned(agent: str, plan: str) -> bool:
            return bool((await ask(api, agent, "x"))["plan"] == plan)

        for agent in ("huge", "grown"):
            await eventually(lambda agent=agent: planned(agent, "nearest"))
            [late] = await store(api, agent, ["the quartz heron sings"])
            answer = await ask(api, agent, "quartz heron")
            assert (answer["memories"][0]["id"], answer["degraded"]) == (late, [])
        built.set()
        await eventually(lambda: planned("huge", "hnsw"))


async def test_what_an_index_overlooks_is_found_all_the_same(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(dsn, tmp_path, exact_up_to=500, nearest_up_to=600, index_check_seconds=0.2)
    async with running(**values) as api:
        texts = [f"{text} rare{index // 20}" for index, text in enumerate(invented(1200, seed=13))]
        ids = await store(api, "astray", texts)
        await indexed(api, "astray", 1200)

        async def planned() -> bool:
            return bool((await ask(api, "astray", "x"))["plan"] == "hnsw")

        await eventually(planned)
        walk = api.memory.vectors.nearest

        async def another_way(namespace: str, agent: str, query: Query, k: int) -> list[Near]:
            """A walk that ended among other memories than the nearest hundred."""
            return list((await walk(namespace, agent, query, k + 100))[100:])

        monkeypatch.setattr(api.memory.vectors, "nearest", another_way)
        wanted = np.stack([HashingEmbedder().vector(terms(text)) for text in texts]) @ HashingEmbedder().vector(
            terms("violin museum rare7")
        )
        # The word is in 20 memories, which shows what was overlooked, and the other 20 have nothing but their vectors.
        answer = await ask(api, "astray", "violin museum rare7", weights={"vector": 1}, k=40)
        found = [ids.index(memory["id"]) for memory in answer["memories"]]
        assert (answer["plan"], len(found)) == ("hnsw", 40)
        assert wanted[found].min() >= np.sort(wanted)[-40] - 1e-3


async def test_a_memory_is_found_before_it_is_indexed(api: Api, dsn: str) -> None:
    await ask(api, "swift", "anything")
    # Not one of the service's four connections: the sweep's writers wait on some of them.
    async with superuser(dsn) as connection, connection.transaction():
        await connection.execute("LOCK TABLE memory_vec IN SHARE MODE")  # readers pass, the indexer waits
        [identity] = await store(api, "swift", ["the sesame door opens at noon"])
        [hit] = (await ask(api, "swift", "when does the sesame door open"))["memories"]
        assert await connection.fetchval("SELECT count(*) FROM memory_vec WHERE agent_id = 'swift'") == 0
    assert hit["id"] == identity


async def test_expired_and_not_yet_valid_memories_are_not_recalled(api: Api) -> None:
    await store(api, "clock", ["gone in a second"], ttl_seconds=1)
    await store(api, "clock", ["true next century"], valid_from="2100-01-01T00:00:00Z")
    await store(api, "clock", ["true last century"], valid_from="1950-01-01T00:00:00Z", valid_to="1990-01-01T00:00:00Z")
    await store(api, "clock", ["never gone"], ttl_seconds=1, pinned=True)
    await asyncio.sleep(1.1)
    assert [hit["content"]["text"] for hit in (await ask(api, "clock", "gone"))["memories"]] == ["never gone"]
    later = await ask(api, "clock", "century", as_of="2101-01-01T00:00:00Z")
    assert "true next century" in [hit["content"]["text"] for hit in later["memories"]]


async def test_as_of_answers_as_then(api: Api) -> None:
    [first] = await store(api, "diary", ["the key is under the mat"])
    async with api.db.tenant("team-a") as connection:
        then = await connection.fetchval("SELECT now()")
    [second] = await store(api, "diary", ["the key is in the shed"])
    assert {hit["id"] for hit in (await ask(api, "diary", "key"))["memories"]} == {first, second}
    past = await ask(api, "diary", "key", as_of=then.isoformat())
    assert [hit["id"] for hit in past["memories"]] == [first]


async def test_a_batch_is_stored_whole_or_not_at_all(api: Api) -> None:
    memory = {"agent_id": "batch", "memory_type": "semantic", "content": {"text": "one"}, "idempotency_key": "b1"}
    other = memory | {"content": {"text": "two"}, "idempotency_key": "b2"}
    first = await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": [memory, other]})
    again = await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": [memory, other]})
    assert (first["ids"], first["duplicates"], again["duplicates"]) == (again["ids"], 0, 2)
    clash = [other | {"idempotency_key": "b3"}, memory | {"content": {"text": "another"}}]
    await api.call("POST", "/api/v1/memory/store/batch", 409, json={"memories": clash})
    assert len((await ask(api, "batch", "one"))["memories"]) == 2
    for bad, field in (([], "memories"), ([memory | {"importance": 2}], "memories.0.importance")):
        refused = await api.call("POST", "/api/v1/memory/store/batch", 422, json={"memories": bad})
        assert refused["error"]["field"] == field


async def test_another_namespace_finds_nothing_whatever_it_asks(api: Api) -> None:
    await store(api, "mine", ["the vault opens with 4711"])
    for context in ("vault", "' OR true --", "4711"):
        assert (await ask(api, "mine", context, namespace="team-b"))["memories"] == []
    # The same connections, asked by turns: a namespace never outlives the statement that named it.
    answers = await asyncio.gather(*(ask(api, "mine", "vault", namespace=f"team-{'ab'[i % 2]}") for i in range(20)))
    assert [len(answer["memories"]) for answer in answers] == [1, 0] * 10
    async with api.db.transaction() as connection:
        assert await connection.fetchval("SELECT current_setting('app.namespace', true)") in (None, "")


async def test_a_recall_is_logged_with_what_it_showed(api: Api) -> None:
    await store(api, "logged", [f"fact {index}" for index in range(5)])
    answer = await ask(api, "logged", "fact 3", k=2)
    await api.memory.recall_log.flush()
    async with api.db.tenant("team-a") as connection:
        row = await connection.fetchrow(
            "SELECT * FROM recall_log WHERE retrieval_id = $1", UUID(answer["retrieval_id"])
        )
        used = await connection.fetch("SELECT memory_id, access_count FROM memory_use")
    assert (row["ranker"], row["shown"], len(row["memory_ids"])) == ("static", 2, 5)
    assert [str(identity) for identity in row["memory_ids"][:2]] == [memory["id"] for memory in answer["memories"]]
    features = np.frombuffer(row["features"], "<f4").reshape(5, len(SIGNALS))
    assert features[0].tolist() == pytest.approx(list(answer["memories"][0]["signals"].values()), abs=1e-4)
    assert {(str(item[0]), item[1]) for item in used} >= {(memory["id"], 1) for memory in answer["memories"]}


def columns(texts: list[str], threads: list[int] | None = None) -> Columns:
    """Memories made of texts, one second apart."""
    n = len(texts)
    packed = [np.frombuffer(pack(terms(text)), "<u4") for text in texts]
    return Columns(
        ids=np.array([[index // 256, index % 256] + [1] * 14 for index in range(n)], np.uint8).reshape(n, 16),
        words=np.concatenate([np.zeros(0, np.uint32), *packed]),
        lengths=np.array([len(item) for item in packed], np.int32),
        created=np.arange(float(n)),
        importance=np.full(n, 0.5, np.float32),
        utility=np.zeros(n, np.float32),
        threads=np.array(threads or [0] * n, np.int64),
    )


def query(text: str) -> Any:
    return np.array([term_hash(word) for word in dict.fromkeys(terms(text))], np.uint32)


def test_rare_words_count_more_and_any_word_counts() -> None:
    found = columns(["the red fox", "the red dog", "the red cat", "the blue cat"])
    score = bm25(found, query("a blue dog"))
    assert score[3] > 0
    assert score[1] > 0
    assert score[0] == score[2] == 0
    assert bm25(found, query("fox red"))[0] > bm25(found, query("fox red"))[1] > 0


def test_the_neighbour_of_a_match_gains_only_within_its_session() -> None:
    found = columns(["what is the code", "it is 4711", "unrelated", "far", "code", "other"], [5, 5, 5, 5, 0, 0])
    near, further = 3 / (1 + 1 + 0.7), 3 * 0.7 / (1 + 1 + 0.7)
    assert neighbours(found, np.array([3.0, 0, 0, 0, 9.0, 0])) == pytest.approx([0, near, further, 0, 0, 0])


@given(st.lists(st.text(alphabet="ab ", max_size=8), max_size=12), st.text(alphabet="ab ", max_size=6))
def test_signals_are_finite_whatever_is_stored(texts: list[str], asked: str) -> None:
    found = signals(columns(texts), np.full(len(texts), np.nan), query(asked))
    z = found.of(np.arange(len(texts)))
    assert z.shape == (len(texts), len(SIGNALS))
    assert np.isfinite(z).all()
    assert np.abs(z.sum(axis=0)).max(initial=0) < 1e-5
    weights = np.arange(1.0, 7.0)
    assert found.scores(weights) == pytest.approx(z @ weights, abs=1e-5), "the sum of what is shown is the score"


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, -1.0]), max_size=200), st.integers(1, 5), st.randoms())
def test_the_best_do_not_depend_on_the_order_of_the_scan(scores: list[float], k: int, random: Any) -> None:
    ids = columns(["x"] * len(scores)).ids
    shuffled = list(range(len(scores)))
    random.shuffle(shuffled)
    plain = [ids[i].tobytes() for i in best(np.array(scores), ids, k)]
    again = [ids[shuffled][i].tobytes() for i in best(np.array(scores)[shuffled], ids[shuffled], k)]
    assert plain == again
    assert len(plain) == min(k, len(scores))


def test_the_cache_of_words_may_fill_up_in_the_middle_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = terms(" ".join(PLACES))
    whole = HashingEmbedder().vector(text)
    monkeypatch.setattr("learnloop_dataplane.embedding.embedder.MAX_CACHED_WORDS", 3)
    assert np.array_equal(HashingEmbedder().vector(text), whole)


@pytest.mark.parametrize(("changes", "bar"), [({}, 121_856), ({"cache_mib": 0}, 20_000), ({"exact_up_to": 7}, 7)])
async def test_agents_that_fit_into_the_process_are_ranked_exactly(
    dsn: str, tmp_path: Path, changes: dict[str, int], bar: int
) -> None:
    async with running(**settings(dsn, tmp_path, **changes)) as api:
        assert api.memory.large_agents._above == bar
