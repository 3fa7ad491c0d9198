"""Recall against the real PostgreSQL: all memories of an agent or a choice, as of then; stored is found."""

import asyncio
from pathlib import Path
from uuid import UUID

import numpy as np

from ..conftest import Api, eventually, running, settings

PLACES = ("harbour", "library", "station", "bakery", "museum", "garden", "bridge", "tower", "market", "school")
THINGS = ("lamp", "ticket", "ladder", "violin", "kettle", "saddle", "anchor", "mirror", "compass", "basket")


def invented(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{' '.join(rng.choice(PLACES, 3))} {' '.join(rng.choice(THINGS, 3))} {index}" for index in range(n)]


async def store(api: Api, agent: str, texts: list[str], **changes) -> list[str]:
    memories = [{"agent_id": agent, "memory_type": "semantic", "content": {"text": text}} | changes for text in texts]
    return (await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories}))["ids"]


async def ask(api: Api, agent: str, context: str | dict, namespace: str = "team-a", **changes) -> dict:
    body = {"agent_id": agent, "context": context} | changes
    return await api.call("POST", "/api/v1/memory/retrieve", namespace=namespace, json=body)


async def indexed(api: Api, agent: str, n: int) -> None:
    async def all_in() -> bool:
        async with api.db.tenant("team-a") as connection:
            rows = "SELECT count(*) FROM memory_index WHERE agent_id = $1"
            return await connection.fetchval(rows, agent) == n

    await eventually(all_in)


async def listed_as_large(api: Api, agent: str) -> None:
    async def done() -> bool:
        async with api.db.tenant("team-a") as connection:
            waits = await connection.fetchval("SELECT bool_or(NOT listed) FROM memory_index WHERE agent_id = $1", agent)
        return not waits and (await ask(api, agent, "x"))["plan"] == "chosen"

    await eventually(done)


async def test_a_memory_is_found_as_soon_as_it_is_stored(api: Api) -> None:
    await ask(api, "swift", "anything")
    [identity] = await store(api, "swift", ["the sesame door opens at noon"])
    answer = await ask(api, "swift", "when does the sesame door open")
    [hit] = answer["memories"]
    assert (hit["id"], hit["why"], answer["plan"], answer["degraded"]) == (identity, "words", "exact", [])


async def test_an_answer_next_to_the_question_is_found_and_says_why(api: Api) -> None:
    talk = [("Ann", "Which instrument did you learn as a child?"), ("Bob", "The cello, for eight years.")]
    noise = [("Ann", text) for text in invented(60, seed=3)]
    for session, turns in (("one", noise[:30]), ("two", talk), ("three", noise[30:])):
        entries = [{"content": {"text": text}, "speaker": name, "session_id": session} for name, text in turns]
        memories = [{"agent_id": "talk", "memory_type": "episodic"} | each for each in entries]
        await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})
    hits = (await ask(api, "talk", "Which instrument did Bob learn?", k=3))["memories"]
    assert ("The cello, for eight years.", "Bob") in [(hit["content"]["text"], hit["speaker"]) for hit in hits]


async def test_a_standing_instruction_has_a_place_until_it_is_withdrawn(api: Api) -> None:
    texts = [f"The report about libraries number {number} is on the shelf." for number in range(30)]
    [rule, *_] = await store(api, "ruled", ["Always give versions when I ask about libraries.", *texts], speaker="user")
    answer = await ask(api, "ruled", "Which libraries are in the report on the shelf?")
    assert (rule, "instruction") in [(hit["id"], hit["why"]) for hit in answer["memories"]]
    [other] = await store(api, "ruled", ["Always include the version of the report."], speaker="user")
    for memory_type in ("working", "semantic"):  # the second ends nothing more
        ends = ["You no longer need to give versions for libraries."]
        await store(api, "ruled", ends, speaker="user", memory_type=memory_type)
        for types in (["semantic"], ["semantic", "episodic"]):
            answer = await ask(api, "ruled", "Which libraries are in the report on the shelf?", memory_types=types)
            assert [hit["id"] for hit in answer["memories"] if hit["why"] == "instruction"] == [other]
    async with api.db.tenant("team-a") as connection:
        assert not await connection.fetch("SELECT * FROM memory_index WHERE kind > 2 AND visible_to < 'infinity'")


async def test_an_order_is_answered_as_it_was_said(api: Api) -> None:
    steps = ["I plant the apple tree.", "I water the apple tree.", "I prune the apple tree."]
    await store(api, "garden", [*steps[:2], *invented(40, seed=5), steps[2]], session_id="s", speaker="user")
    answer = await ask(api, "garden", "In which order did I look after the apple tree?", k=5)
    contents = [hit["content"]["text"] for hit in answer["memories"]]
    assert [text for text in contents if text in steps] == steps
    assert {hit["why"] for hit in answer["memories"]} == {"order"}
    days = ["I swim in the red lake.", "I swim in the old lake.", "I swim in the far lake.", "I swim in the dry lake."]
    batch = [
        {"agent_id": "lakes", "memory_type": "episodic", "session_id": d[14], "content": {"text": d}} for d in days
    ]
    await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": batch})
    hits = (await ask(api, "lakes", "In which order did I swim in the lakes?", k=4))["memories"]
    assert [hit["content"]["text"] for hit in hits] == days


async def test_a_large_agents_choice_answers_as_ranking_everything_does(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2)) as api:
        rng = np.random.default_rng(3)
        texts = [
            f"{' '.join(rng.choice(PLACES, 2))} {' '.join(rng.choice(THINGS, 2))} n{index} rare{index // 20}"
            for index in range(1200)
        ]
        questions = [f"{rng.choice(PLACES)} {rng.choice(THINGS)} rare{number}" for number in range(20)]
        ids = await store(api, "large", texts, session_id="s")
        await store(api, "small", texts[:50])

        exact = [[hit["content"] for hit in (await ask(api, "large", text))["memories"]] for text in questions]
        await listed_as_large(api, "large")
        assert (await ask(api, "small", "harbour"))["plan"] == "exact"
        for text, expected in zip(questions, exact, strict=True):
            answer = await ask(api, "large", text)
            contents = [hit["content"] for hit in answer["memories"]]
            assert answer["searched"] == 1200
            assert sum(content in expected for content in contents) >= 9, text
        [late] = await store(api, "large", ["the quartz heron sings"])
        assert (await ask(api, "large", "quartz heron"))["memories"][0]["id"] == late
        body = {"agent_id": "large", "ids": [late]}
        await api.call("POST", "/api/v1/memory/delete", json=body)
        contents = (await ask(api, "large", "quartz heron"))["memories"]
        assert late not in [hit["id"] for hit in contents]
        halves = [body | {"ids": ids[first::2]} for first in range(2)]
        await asyncio.gather(*(api.call("POST", "/api/v1/memory/delete", json=half) for half in halves))
        async with api.db.tenant("team-a") as connection:
            left = "SELECT count(*) FROM memory_word_counts WHERE agent_id = 'large' AND (word >= 0 OR memories > 0)"
            assert await connection.fetchval(left) == 0


async def test_to_delete_a_few_memories_of_a_young_large_agent_reads_few_of_its_words(dsn: str, tmp_path: Path) -> None:
    read = """SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
        WHERE relname = 'memory_words'"""
    async with running(**settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2)) as api:
        ids = await store(api, "young", invented(1500, seed=9))
        await listed_as_large(api, "young")
        async with api.db.tenant("team-a") as connection:
            before = await connection.fetchval(read)  # what the connection read earlier may not be reported yet
            await connection.execute("DELETE FROM agent_memories WHERE id = ANY($1::uuid[])", ids[:5])
            rows = await connection.fetchval(read) - before
            words = await connection.fetchval("SELECT count(*) FROM memory_words WHERE agent_id = 'young'")
        assert rows < 300 < words


async def test_of_memories_with_one_common_word_those_are_chosen_that_ranking_all_puts_first(
    dsn: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    texts = [
        f"{'kettle ' * (n % 3 < 1)}w{' w'.join(map(str, rng.integers(9999, size=n % 40 + 9)))} heron"
        for n in range(10_000)
    ]
    texts[2500:7500:500] = [f"{day}, a heron" for day in ("today", "May 5", "yesterday", "in June", "Monday")] * 2
    texts[2600:7600:500] = [f"a heron {thing}" for thing in THINGS]
    questions = (
        "a heron?",
        "when was the heron here?",
        "what of the heron, Ann?",
        "how long was the heron at a kettle?",
    )
    exact = []
    for plan, most in ("exact", 20_000), ("chosen", 500):
        async with running(**settings(dsn, tmp_path, exact_up_to=most, index_check_seconds=0.2)) as api:
            if plan == "exact":
                for start in range(0, len(texts), 1000):
                    speaker = "Ann" if start == 4000 else "Bob"
                    await store(api, "herons", texts[start : start + 1000], speaker=speaker)
            else:
                await store(api, "wakes", ["the service"])
                await listed_as_large(api, "herons")
            answers = [await ask(api, "herons", text) for text in questions]
            assert {answer["plan"] for answer in answers} == {plan}
            exact = exact or [[hit["content"] for hit in answer["memories"]] for answer in answers]
    for text, answer, expected in zip(questions, answers, exact, strict=True):
        assert sum(hit["content"] in expected for hit in answer["memories"]) == 10, text


async def test_neither_copies_nor_what_it_may_not_see_take_a_large_agents_places(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2)) as api:
        for copies in 600, 500:
            await store(api, "junky", ["kettle harbour"] * copies)
        await store(api, "junky", ["the kettle of the harbour"])
        await store(api, "junky", ["how the kettle of the harbour is descaled, step by step"], memory_type="procedural")
        await listed_as_large(api, "junky")
        assert len((await ask(api, "junky", "kettle harbour", memory_types=["procedural"]))["memories"]) == 1
        assert len((await ask(api, "junky", "kettle harbour"))["memories"]) == 3
        pots = ["Always name the pot.", "Always name the jug when I ask about kettles."]
        await store(api, "junky", pots, memory_type="procedural", speaker="user")
        pans = [f"Always name pan {number}." for number in range(520)]
        await store(api, "junky", ["You no longer need to name the jug.", *pans], speaker="user")
        await listed_as_large(api, "junky")
        typed = await ask(api, "junky", "kettle harbour", memory_types=["procedural"])
        assert sorted(hit["why"] for hit in typed["memories"]) == ["instruction", "words", "words"]


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
    for changes, ids in ({}, {first, second}), ({"as_of": then.isoformat()}, {first}):
        assert {hit["id"] for hit in (await ask(api, "diary", "key", **changes))["memories"]} == ids


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


async def test_a_recall_is_logged_with_what_it_answered_unless_it_only_looks(api: Api) -> None:
    await store(api, "logged", [f"fact {index}" for index in range(5)])
    answer = await ask(api, "logged", "fact 3", k=2)
    looked = await ask(api, "logged", "fact 3", k=2, logged=False)
    await api.memory.recall_log.flush()
    async with api.db.tenant("team-a") as connection:
        rows = await connection.fetch("SELECT * FROM recall_log WHERE agent_id = 'logged'")
        used = await connection.fetch("SELECT memory_id, access_count FROM memory_use")
    assert [row["retrieval_id"] for row in rows] == [UUID(answer["retrieval_id"])]
    assert [str(identity) for identity in rows[0]["memory_ids"]] == [memory["id"] for memory in answer["memories"]]
    assert {(str(item[0]), item[1]) for item in used} >= {(memory["id"], 1) for memory in answer["memories"]}
    assert [hit["id"] for hit in looked["memories"]] == [hit["id"] for hit in answer["memories"]]
