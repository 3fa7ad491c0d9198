"""Forgetting, consolidation, origins, export and import of memories, on the real PostgreSQL."""

import asyncio
import json
from uuid import UUID, uuid4

from learnloop_dataplane.erasure.retention import Retention
from learnloop_dataplane.lifecycle import export
from learnloop_dataplane.lifecycle.distillation import CountingDistiller, Episode, lower_bound
from learnloop_dataplane.lifecycle.quarantine import retire

from ..conftest import Api, superuser
from ..recall.test_recall import ask, store

BASE = "/api/v1/memory"


async def texts(api: Api, agent: str, question: str = "x", **changes) -> set[str]:
    return {hit["content"]["text"] for hit in (await ask(api, agent, question, k=100, **changes))["memories"]}


async def post(api: Api, path: str, status: int = 200, **body):
    return await api.call("POST", f"{BASE}/{path}", status, json=body)


async def test_one_lucky_episode_is_no_procedure() -> None:
    assert lower_bound(1, 1) < lower_bound(18, 20)
    history = [Episode(str(i), "maze", i % 2 == 0, float(i), ("approach", "left")) for i in range(10)]
    history += [Episode(f"r{i}", "maze", True, 1.0, ("approach", "right")) for i in range(6)]
    history += [Episode("lucky", "maze", True, 99.0, ("approach", "jump"))]
    fact, procedure = await CountingDistiller().distil("walker", history)
    assert fact.memory_type == "semantic"
    assert "12 of 17 succeeded" in fact.content["text"]
    assert procedure.memory_type == "procedural"
    assert procedure.content["approach"] == "right"
    assert procedure.provenance["from"] == [f"r{i}" for i in range(6)]


async def test_forgetting_says_first_what_would_go(api: Api) -> None:
    await store(api, "full", [f"trifle {index}" for index in range(8)], importance=0.1)
    await store(api, "full", ["weighty one", "weighty two"], importance=0.9)
    await store(api, "full", ["pinned trifle"], importance=0.0, pinned=True)
    plan = await post(api, "forget", agent_id="full", budget=3, dry_run=True)
    assert (plan["held"], plan["forgotten"], len(plan["examples"])) == (11, 8, 8)
    assert len(await texts(api, "full")) == 11
    await post(api, "forget", agent_id="full", budget=3)
    assert await texts(api, "full") == {"weighty one", "weighty two", "pinned trifle"}
    ended = await api.call("GET", f"{BASE}/entries?agent_id=full&ended=true")
    assert [memory["state"] for memory in ended["memories"]].count("forgotten") == 8


async def test_the_useful_outlive_the_new_and_the_helpful_those_that_hurt(api: Api, dsn: str) -> None:
    names = ["old", "useful", "used", "new", "helpful", "hurtful"]
    ids = await store(api, "worthy", names, memory_type="episodic")
    uses = {"useful": (0, 5.0, 0.0), "used": (30, 0.0, 0.0), "helpful": (0, 3.0, 1.0), "hurtful": (0, 1.0, 3.0)}
    async with superuser(dsn) as connection:
        old = "UPDATE agent_memories SET created_at = now() - interval '60 days' WHERE id = ANY($1::uuid[])"
        await connection.execute(old, ids[:3])
        use = "INSERT INTO memory_use (namespace, memory_id, access_count, helped, hurt) VALUES ('team-a',$1,$2,$3,$4)"
        for name, values in uses.items():
            await connection.execute(use, ids[names.index(name)], *values)
    plan = await post(api, "forget", agent_id="worthy", budget=0, dry_run=True)
    order = [example["text"] for example in plan["examples"]]
    assert order == ["old", "used", "useful", "hurtful", "new", "helpful"]
    worths = [example["value"] for example in plan["examples"]]
    assert worths == sorted(worths)
    gone = (await post(api, "forget", agent_id="worthy", budget=4))["examples"]
    assert [example["text"] for example in gone] == ["old", "used"]


async def test_an_instruction_does_not_age_and_what_withdraws_one_goes_last(api: Api, dsn: str) -> None:
    sentences = ["You no longer need to cite sources.", "Always give prices in euros.", "old talk", "new talk"]
    ids = await store(api, "ruler", sentences, memory_type="episodic", speaker="user")
    async with superuser(dsn) as connection:
        old = "UPDATE agent_memories SET created_at = now() - interval '60 days' WHERE id = ANY($1::uuid[])"
        await connection.execute(old, ids[:3])
    plan = await post(api, "forget", agent_id="ruler", budget=0, dry_run=True)
    assert [example["text"] for example in plan["examples"]] == ["old talk", "new talk", sentences[1], sentences[0]]
    talk = ["You no longer need to change trains in Bern.", "new talk", "I prefer window seats."]
    await store(api, "traveller", talk[:1], memory_type="episodic", speaker="user", importance=0.1)
    await store(api, "traveller", talk[1:], memory_type="episodic", speaker="user")
    plan = await post(api, "forget", agent_id="traveller", budget=0, dry_run=True)
    assert plan["examples"][0]["text"] == talk[0]


async def test_of_opposite_statements_the_older_goes_first_and_neither_displaces_what_is_worth_more(api: Api) -> None:
    turns = ["I never eat nuts.", "I eat nuts again.", "I never eat nuts."]
    for place, text in enumerate(turns):
        await store(api, "eater", [text], speaker="user", importance=0.9 - 0.4 * place)
    await store(api, "eater", ["I never eat fish."], speaker="user", importance=0.3)
    plan = await post(api, "forget", agent_id="eater", budget=0, dry_run=True)
    assert [example["text"] for example in plan["examples"]] == [*turns, "I never eat fish."]


async def test_consolidation_ends_junk_once_and_leaves_the_rest(api: Api) -> None:
    agent = "messy"
    await store(api, agent, ["the printer on floor two jams on mondays"] * 3)
    await store(api, agent, ["The printer on floor two jams on mondays!", "the coffee machine is on floor three"])
    await ask(api, agent, "printer", k=5)
    await api.memory.recall_log.flush()
    await store(api, agent, ["as far as i know the printer on floor two jams on mondays and always did"])
    dry = await post(api, "consolidate", agent_id=agent, dry_run=True)
    done = await post(api, "consolidate", agent_id=agent)
    assert (done["duplicates"], done["echoes"], done["junk_ratio"]) == (3, 0, 0.5)
    assert dry | {"dry_run": False} == done
    assert len(await texts(api, agent)) == 3
    again = await post(api, "consolidate", agent_id=agent)
    assert (again["duplicates"], again["echoes"], again["distilled"]) == (0, 0, 0)


async def test_an_echo_of_a_recalled_memory_ends_at_consolidation(api: Api) -> None:
    await store(api, "parrot", ["the harbour crane needs an inspection in the second week of may"] * 3)
    await ask(api, "parrot", "crane")
    await store(api, "parrot", ["as noted the harbour crane needs an inspection in the second week of may"])
    assert (await post(api, "consolidate", agent_id="parrot"))["echoes"] == 1
    assert len((await api.call("GET", f"{BASE}/entries?agent_id=parrot"))["memories"]) == 1


async def test_episodes_become_a_fact_that_is_replaced_by_a_newer_one(api: Api) -> None:
    contents = [{"task": "sorting", "text": f"run {i}", "success": i > 2, "approach": "radix"} for i in range(8)]
    memories = [{"agent_id": "sorter", "memory_type": "episodic", "content": content} for content in contents]
    await api.call("POST", f"{BASE}/store/batch", 201, json={"memories": memories})
    assert (await post(api, "consolidate", agent_id="sorter"))["distilled"] == 2
    assert "sorting: approach radix works best, 5 of 8 succeeded" in await texts(api, "sorter")
    ninth = memories[-1] | {"content": contents[-1] | {"text": "run 8"}}
    await api.call("POST", f"{BASE}/store/batch", 201, json={"memories": [ninth, memories[-1]]})
    assert (await post(api, "consolidate", agent_id="sorter"))["distilled"] == 2
    now = await texts(api, "sorter", memory_types=["procedural", "semantic"])
    assert now == {"sorting: 9 episodes, 6 of 9 succeeded", "sorting: approach radix works best, 6 of 9 succeeded"}


async def test_an_origin_is_quarantined_released_and_rolled_back_whole(api: Api) -> None:
    await store(api, "reader", ["the moon is made of cheese", "cheese is cheap"], origin="web/hoax.example/1")
    await store(api, "reader", ["the moon is rock"], origin="web/good.example")
    await ask(api, "reader", "moon")
    await api.memory.recall_log.flush()
    far = await post(api, "origins", origin="web/hoax.example/*", action="quarantine", dry_run=True)
    assert (far["memories"], far["agents"], far["recalls"]) == (2, {"reader": 2}, 1)
    await post(api, "origins", origin="web/hoax.example/*", action="quarantine")
    assert await texts(api, "reader") == {"the moon is rock"}
    await post(api, "origins", origin="web/hoax.example/1", action="release")
    assert len(await texts(api, "reader")) == 3
    await post(api, "origins", origin="web/hoax.example/1", action="rollback")
    assert (await post(api, "origins", origin="web/hoax.example/1", action="release"))["memories"] == 0
    assert await texts(api, "reader") == {"the moon is rock"}


async def test_an_origin_with_an_address_is_found_by_it_and_stored_and_audited_without(api: Api, dsn: str) -> None:
    await store(api, "postman", ["the invoice is overdue"], origin="mail/eve@phish.example/7")
    await store(api, "postman", ["an episode said so"], origin="trajectory/e-7")
    for origin in ("mail/eve@phish.example/7", "mail/eve@phish.example*"):
        far = await post(api, "origins", origin=origin, action="quarantine", dry_run=True)
        assert (far["origin"].startswith("mail/<EMAIL"), far["memories"]) == (True, 1)
    await post(api, "origins", origin="mail/eve@phish.example/*", action="rollback")
    await post(api, "origins", origin="trajectory/e-7", action="quarantine")
    assert await texts(api, "postman") == set()
    async with superuser(dsn) as connection:
        for table in ("agent_memories", "audit_pending", "audit_log"):
            rows = await connection.fetch(f"SELECT t::text FROM {table} t")
            assert not [row for row in rows if "eve@" in row["t"]], table


async def test_an_export_comes_back_the_same_and_once(api: Api) -> None:
    ever = {"valid_from": "0001-01-01T00:00:00Z", "valid_to": "9999-12-31T23:59:59.999999Z"}
    await store(api, "mover", [f"thing {index}" for index in range(5)], importance=0.8, session_id="s1", **ever)
    lines = (await api.call("GET", f"{BASE}/export?agent_id=mover")).text
    assert len(lines.splitlines()) == 5
    for new, old in ((5, 0), (0, 5)):
        answer = await api.call("POST", f"{BASE}/import?agent_id=moved", 201, content=lines)
        assert answer == {"imported": new, "duplicates": old, "opted_out": 0}
    assert await texts(api, "moved") == {f"thing {index}" for index in range(5)}
    [entry] = (await api.call("GET", f"{BASE}/entries?agent_id=moved&limit=1"))["memories"]
    assert (entry["importance"], entry["session_id"]) == (0.8, "s1")
    assert entry["remembered_at"] == json.loads(lines.splitlines()[0])["created_at"], "as old as its original"
    ahead = {"id": str(uuid4()), "created_at": "2999-01-01T00:00:00Z", "expires_at": ever["valid_to"]}
    lines = json.dumps(ahead | {"memory_type": "semantic", "content": {"text": "of a clock that is ahead"}})
    for agent in ("ahead", "further"):
        await api.call("POST", f"{BASE}/import?agent_id={agent}", 201, content=lines)
        assert await texts(api, agent) == {"of a clock that is ahead"}
        lines = (await api.call("GET", f"{BASE}/export?agent_id={agent}")).text
    for bad, field in (("[]", "body"), ("{", "body"), ('{"id": 1}', None), ("", "body")):
        refused = await api.call("POST", f"{BASE}/import?agent_id=moved", 422, content=bad)
        assert field is None or refused["error"]["field"] == field


async def test_pages_follow_one_another_without_gap(api: Api) -> None:
    ids = await store(api, "paged", [f"p{index}" for index in range(7)])
    collected: list[str] = []
    after = ""
    while True:
        answer = await api.call("GET", f"{BASE}/entries?agent_id=paged&limit=3{after}")
        collected += [memory["id"] for memory in answer["memories"]]
        if answer["next"] is None:
            break
        after = f"&after={answer['next']}"
    assert collected == sorted(ids, key=lambda text: UUID(text).bytes)


async def test_a_memory_deleted_between_two_pages_ends_neither_list_nor_export(api, monkeypatch):
    ids = sorted(await store(api, "shrinking", [f"s{index}" for index in range(6)]))
    first = await api.call("GET", f"{BASE}/entries?agent_id=shrinking&limit=2")
    await post(api, "delete", agent_id="shrinking", ids=[first["memories"][-1]["id"]])
    rest = await api.call("GET", f"{BASE}/entries?agent_id=shrinking&after={first['next']}")
    assert [memory["id"] for memory in rest["memories"]] == ids[2:]
    monkeypatch.setattr(export, "PAGE", 2)
    pages = export.export(api.db, "team-a", "shrinking", None)
    lines = (await anext(pages)).splitlines()
    await post(api, "delete", agent_id="shrinking", ids=[json.loads(lines[-1])["id"]])
    async for page in pages:
        lines += page.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [ids[0], *ids[2:]]
    for bad in ("x", ids[0], "1,2", f"17,{ids[0]},"):
        await api.call("GET", f"{BASE}/entries?agent_id=shrinking&after={bad}", 422)


async def test_deleting_names_what_it_deletes_and_leaves_nothing_of_it(api: Api) -> None:
    ids = await store(api, "erased", ["one", "two"])
    await post(api, "delete", 422, agent_id="erased", ids=[])
    body = {"agent_id": "erased", "ids": ids}
    assert await api.call("POST", f"{BASE}/delete", namespace="team-b", json=body) == {"deleted": 0}
    assert await post(api, "delete", **body) == {"deleted": 2}
    await store(api, "erased", ["the vault opens with 4711"] * 3)
    await post(api, "consolidate", agent_id="erased")
    [left] = (await api.call("GET", f"{BASE}/entries?agent_id=erased"))["memories"]
    assert await post(api, "delete", agent_id="erased", ids=[left["id"]]) == {"deleted": 3}, "with its copies"
    one, copy, gone = map(UUID, await store(api, "erased", ["the same"] * 3))
    await post(api, "delete", agent_id="erased", ids=[str(gone)])
    async with api.db.tenant("team-a") as connection:
        assert await retire(connection, "team-a", "erased", [copy, one], "duplicate", [one, gone]) == [copy]
        deleting = asyncio.create_task(export.delete(api.db, "team-a", "erased", [one]))
        await asyncio.wait([deleting], timeout=0.5)
    assert await deleting == 2, "with the copy that was one meanwhile"
    async with api.db.tenant("team-a") as connection:
        assert not await connection.fetchval("SELECT count(*) FROM memory_index WHERE agent_id = 'erased'")


async def test_what_ended_long_ago_is_deleted(api: Api) -> None:
    await store(api, "archive", ["ancient"])
    await post(api, "forget", agent_id="archive", budget=0)
    async with api.db.tenant("team-a") as connection:
        await connection.execute("UPDATE agent_memories SET ends_at = '2000-01-01' WHERE agent_id = 'archive'")
    await store(api, "archive", ["fleeting"])
    await post(api, "forget", agent_id="archive", budget=0)
    await Retention(api.db, 30).run()
    left = await api.call("GET", f"{BASE}/entries?agent_id=archive&ended=true")
    assert [memory["content"]["text"] for memory in left["memories"]] == ["fleeting"]


async def test_a_count_that_comes_after_its_memory_was_deleted_goes(api: Api) -> None:
    staying, gone = await store(api, "counted", ["stays", "goes"])
    await post(api, "delete", agent_id="counted", ids=[gone])
    async with api.db.tenant("team-a") as connection:
        use = "INSERT INTO memory_use (namespace, memory_id, access_count) SELECT 'team-a', unnest($1::uuid[]), 1"
        await connection.execute(f"{use} ON CONFLICT DO NOTHING", [UUID(staying), UUID(gone)])
    await Retention(api.db, 30).run()
    async with api.db.tenant("team-a") as connection:
        used = "SELECT memory_id FROM memory_use WHERE memory_id = ANY($1)"
        rows = await connection.fetch(used, [UUID(staying), UUID(gone)])
    assert [str(row["memory_id"]) for row in rows] == [staying]
