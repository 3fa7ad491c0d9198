"""Housekeeping costs nothing true: only junk goes, and it does not come back."""

from learnloop_dataplane.erasure.retention import Retention

from ..conftest import Api, superuser
from ..recall.test_recall import ask, store
from .test_lifecycle import BASE, post, texts


async def episodes(api: Api, agent: str, count: int, origin: str, task: str = "betting") -> None:
    held = [{"task": task, "text": f"{task} {origin} {i}", "success": True, "approach": "double"} for i in range(count)]
    memories = [{"agent_id": agent, "memory_type": "episodic", "content": one, "origin": origin} for one in held]
    await api.call("POST", f"{BASE}/store/batch", 201, json={"memories": memories})


async def test_consolidation_keeps_what_outlives_its_twin_and_details_that_differ(api: Api) -> None:
    await store(api, "keeper", ["the server room opens at noon"], importance=0.9, ttl_seconds=3600)
    await store(api, "keeper", ["the server room opens at noon"], importance=0.1)
    gates = [{"text": "the bus leaves from here", "gate": gate} for gate in (4, 5)]
    memories = [{"agent_id": "keeper", "memory_type": "semantic", "content": gate} for gate in gates]
    await api.call("POST", f"{BASE}/store/batch", 201, json={"memories": memories})
    assert (await post(api, "consolidate", agent_id="keeper"))["duplicates"] == 1
    left = (await api.call("GET", f"{BASE}/entries?agent_id=keeper"))["memories"]
    assert [memory["importance"] for memory in left if "room" in memory["content"]["text"]] == [0.1]
    assert sorted(memory["content"].get("gate", 0) for memory in left) == [0, 4, 5]


async def test_what_ends_as_a_duplicate_is_no_evidence_and_a_second_pass_changes_nothing(api: Api) -> None:
    await episodes(api, "counter", 6, "tool/a")
    await episodes(api, "counter", 6, "tool/a")
    first = await post(api, "consolidate", agent_id="counter")
    assert (first["duplicates"], first["distilled"]) == (6, 2)
    assert "betting: 6 episodes, 6 of 6 succeeded" in await texts(api, "counter")
    assert (await post(api, "consolidate", agent_id="counter"))["distilled"] == 0


async def test_a_rollback_reaches_what_was_distilled_from_more_episodes_than_are_named(api: Api) -> None:
    await episodes(api, "gambler", 3, "tool/tipster")
    await episodes(api, "gambler", 120, "tool/honest")
    await post(api, "consolidate", agent_id="gambler")
    assert (await post(api, "origins", origin="tool/tipster", action="rollback"))["memories"] == 5
    assert not {text for text in await texts(api, "gambler") if "episodes" in text}
    await post(api, "consolidate", agent_id="gambler")
    assert "betting: 120 episodes, 120 of 120 succeeded" in await texts(api, "gambler")


async def test_what_another_source_said_too_stays_when_the_first_goes(api: Api) -> None:
    await store(api, "cited", ["water boils at one hundred degrees"] * 2, origin="web/hoax", importance=0.9)
    await store(api, "cited", ["water boils at one hundred degrees"], origin="web/good")
    assert (await post(api, "consolidate", agent_id="cited"))["duplicates"] == 2
    await post(api, "origins", origin="web/hoax", action="rollback")
    left = (await api.call("GET", f"{BASE}/entries?agent_id=cited"))["memories"]
    assert [memory["origin"] for memory in left] == ["web/good"]


async def test_a_rolled_back_memory_was_not_there_while_it_was_quarantined(api: Api, dsn: str) -> None:
    await store(api, "past", ["the moon is cheese"], origin="web/hoax")
    await post(api, "origins", origin="web/hoax", action="quarantine")
    async with superuser(dsn) as connection:
        meanwhile = await connection.fetchval("SELECT clock_timestamp()")
    await post(api, "origins", origin="web/hoax", action="rollback")
    assert await texts(api, "past", as_of=meanwhile.isoformat()) == set()


async def test_a_released_fact_beside_its_successor_is_one_again_after_the_next_pass(api: Api) -> None:
    await episodes(api, "twice", 6, "tool/tipster")
    await episodes(api, "twice", 6, "tool/honest")
    await post(api, "consolidate", agent_id="twice")
    await post(api, "origins", origin="tool/tipster", action="quarantine")
    await post(api, "consolidate", agent_id="twice")
    await post(api, "origins", origin="tool/tipster", action="release")
    await post(api, "consolidate", agent_id="twice")
    facts = {text for text in await texts(api, "twice") if "episodes" in text}
    assert facts == {"betting: 12 episodes, 12 of 12 succeeded"}
    answer = await ask(api, "twice", "x", k=100, memory_types=["semantic"])
    assert len(answer["memories"]) == 1


async def test_an_import_keeps_how_long_a_memory_lives_and_since_when_it_is_true(api: Api) -> None:
    await store(api, "leaver", ["brief"], ttl_seconds=60)
    lines = (await api.call("GET", f"{BASE}/export?agent_id=leaver")).text
    await api.call("POST", f"{BASE}/import?agent_id=arrived", 201, content=lines)
    [old] = (await api.call("GET", f"{BASE}/entries?agent_id=leaver"))["memories"]
    [new] = (await api.call("GET", f"{BASE}/entries?agent_id=arrived"))["memories"]
    assert (new["expires_at"], new["valid_from"]) == (old["expires_at"], old["created_at"])


async def test_retention_leaves_pinned_episodes(api: Api, dsn: str) -> None:
    for agent in ("pins", "plain"):
        await store(api, agent, ["an old episode"], pinned=agent == "pins")
    old = "UPDATE agent_memories SET source = 'episode', created_at = '2000-01-01' WHERE agent_id IN ('pins', 'plain')"
    async with superuser(dsn) as connection:
        await connection.execute(old)
    await Retention(api.db, 30).run()
    assert (await texts(api, "pins"), await texts(api, "plain")) == ({"an old episode"}, set())


async def test_turns_that_were_stored_together_stand_next_to_one_another_as_they_were_said(api: Api) -> None:
    words = ["apple", "birch", "cedar", "daisy", "elder", "fennel", "ginger", "hazel", "iris"]
    await store(api, "talker", words, memory_type="episodic", session_id="s1")
    for place, word in enumerate(words):
        hits = (await ask(api, "talker", word, k=len(words)))["memories"]
        context = {hit["content"]["text"]: hit["score"] for hit in hits if hit["content"]["text"] != word}
        around = {words[other] for other in range(len(words)) if 1 <= abs(other - place) <= 2}
        assert set(sorted(context, key=lambda turn: -context[turn])[: len(around)]) == around
        # A first or last turn has fewer around it, and each counts more for it: only others are compared.
        for side in (-1, 1):
            nearer, further = place + side, place + 2 * side
            if min(nearer, further) >= 2 and max(nearer, further) < len(words) - 2:
                assert context[words[nearer]] > context[words[further]]
