"""Memories that name a person go with that person."""

import asyncio

import orjson

from learnloop_dataplane.memories.memory_store import NewMemory, insert
from learnloop_dataplane.stems import Analyzer

from ..conftest import Api, superuser, trajectory


def memory(text: str, user: str | None, agent: str = "guide") -> dict:
    body = {"agent_id": agent, "memory_type": "semantic", "content": {"text": text}}
    return body if user is None else body | {"user_id": user}


async def texts(api: Api, namespace: str) -> set[str]:
    entries = await api.call("GET", "/api/v1/memory/entries?agent_id=guide", namespace=namespace)
    return {item["content"]["text"] for item in entries["memories"]}


async def test_an_opt_out_deletes_what_is_about_the_person_and_nothing_more_is_stored(api: Api, dsn: str) -> None:
    async def store(text: str, user: str | None, status: int = 201):
        return await api.call("POST", "/api/v1/memory/store", status, namespace="people", json=memory(text, user))

    await store("likes window seats", "anna")
    await store("likes aisle seats", "ben")
    await store("the desk opens at nine", None)
    async with superuser(dsn) as connection:
        dump = await connection.fetchval("SELECT string_agg(m::text, ' ') FROM agent_memories m")
        assert "anna" not in dump, "known by a pseudonym only"
    await api.call("PUT", "/api/v1/users/anna/opt-out", 204, namespace="people")
    assert await texts(api, "people") == {"likes aisle seats", "the desk opens at nine"}
    refused = await store("likes window seats", "anna", 200)
    assert (refused["stored"], refused["id"]) == (False, None)
    batch = [memory("a", "anna"), memory("b", "ben"), memory("c", None)]
    done = await api.call("POST", "/api/v1/memory/store/batch", 201, namespace="people", json={"memories": batch})
    assert done["opted_out"] == 1
    assert [identity is None for identity in done["ids"]] == [True, False, False]
    assert await texts(api, "people") == {"likes aisle seats", "the desk opens at nine", "b", "c"}


async def test_an_erasure_reaches_copies_and_no_other_namespace(api: Api) -> None:
    for namespace in ("here", "there"):
        body = memory("prefers tea", "anna")
        await api.call("POST", "/api/v1/memory/store", 201, namespace=namespace, json=body)
    lines = (await api.call("GET", "/api/v1/memory/export?agent_id=guide", namespace="here")).text
    await api.call("POST", "/api/v1/memory/import?agent_id=twin", 201, namespace="here", content=lines)
    receipt = await api.call("POST", "/api/v1/erasure", namespace="here", json={"user_id": "anna"})
    assert receipt["rows"]["agent_memories"] == 2
    assert await texts(api, "here") == set()
    assert await texts(api, "there") == {"prefers tea"}


async def test_an_export_says_whom_a_memory_is_about_and_an_import_honours_their_opt_out(api: Api) -> None:
    async def call(method: str, path: str, status: int = 200, **body):
        return await api.call(method, path, status, namespace="moves", **body)

    for text, user in (("likes tea", "anna"), ("likes rum", "ben"), ("opens at nine", None)):
        await call("POST", "/api/v1/memory/store", 201, json=memory(text, user))
    exported = (await call("GET", "/api/v1/memory/export?agent_id=guide")).text
    lines = [orjson.loads(line) for line in exported.splitlines()]
    assert [str(line["user_id"])[:5] for line in lines] == ["user:", "user:", "None"]
    done = await call("POST", "/api/v1/memory/import?agent_id=copy", 201, content=exported)
    assert done == {"imported": 3, "duplicates": 0, "opted_out": 0}
    await call("PUT", "/api/v1/users/anna/opt-out", 204)
    left = await call("GET", "/api/v1/memory/entries?agent_id=copy")
    assert [item["content"]["text"] for item in left["memories"]] == ["likes rum", "opens at nine"]
    done = await call("POST", "/api/v1/memory/import?agent_id=again", 201, content=exported)
    assert done == {"imported": 2, "duplicates": 0, "opted_out": 1}
    named = orjson.dumps({**lines[1], "user_id": "anna"})
    assert (await call("POST", "/api/v1/memory/import?agent_id=again", 201, content=named))["opted_out"] == 1


async def test_what_was_made_of_an_episode_is_exported_with_the_person_of_the_episode(api: Api) -> None:
    body = trajectory("of-anna", "guide", metadata={"user_id": "anna"})
    await api.call("POST", "/api/v1/trajectories", 202, namespace="told", json=body)
    entry = memory("the lift was slow", None) | {"origin": "trajectory/of-anna"}
    await api.call("POST", "/api/v1/memory/store", 201, namespace="told", json=entry)
    exported = (await api.call("GET", "/api/v1/memory/export?agent_id=guide", namespace="told")).text
    people = {orjson.loads(line)["user_id"] for line in exported.splitlines()}
    assert len(people) == 1
    assert people.pop().startswith("user:")


async def test_what_was_distilled_from_a_persons_episodes_is_in_their_export_and_goes_with_them(api: Api) -> None:
    async def call(method: str, path: str, status: int = 200, **options):
        return await api.call(method, path, status, namespace="access", **options)

    async def lines(agent: str = "guide", **query: str) -> list[dict]:
        memories = await call("GET", "/api/v1/memory/export", params={"agent_id": agent, **query})
        return [orjson.loads(line) for line in memories.text.splitlines()]

    def contents(memories: list[dict]) -> list[str]:
        return sorted(line["content"]["text"] for line in memories)

    fields = {"agent_id": "guide", "memory_type": "episodic"}
    run = {"task": "booking", "success": True, "approach": "asking"}
    for number, user in enumerate(["anna", "anna", "ben", "ben", "ben", None]):
        body = fields | {"content": run | {"text": f"run {number}"}} | ({"user_id": user} if user else {})
        await call("POST", "/api/v1/memory/store", 201, json=body)
    await call("POST", "/api/v1/memory/store", 201, json=memory("carla likes tea", "carla"))
    assert (await call("POST", "/api/v1/memory/consolidate", json={"agent_id": "guide"}))["distilled"] == 2
    everything = await lines()
    facts = [line for line in everything if line["source"] == "consolidation"]
    anna, ben = (next(line["user_id"] for line in everything if line["content"]["text"] == f"run {n}") for n in (0, 2))
    assert [line["user_id"] for line in facts] == [None, None]
    assert [line["user_ids"] for line in facts] == [sorted([anna, ben])] * 2
    hers = contents([line for line in everything if anna in line["user_ids"]])
    assert len(hers) == 4
    assert contents(await lines(user_id="anna")) == contents(await lines(user_id=anna)) == hers
    assert await lines(user_id="nobody") == []

    copies = b"\n".join(orjson.dumps(line) for line in everything)
    await call("POST", "/api/v1/memory/import?agent_id=copy", 201, content=copies)
    assert contents(await lines("copy", user_id="anna")) == hers
    await call("PUT", "/api/v1/users/anna/opt-out", 204)
    for agent in ("guide", "copy"):
        assert await lines(agent, user_id="anna") == []
        assert contents(await lines(agent)) == ["carla likes tea", "run 2", "run 3", "run 4", "run 5"]
    done = await call("POST", "/api/v1/memory/import?agent_id=again", 201, content=copies)
    assert done == {"imported": 5, "duplicates": 0, "opted_out": 4}, "and what was distilled from hers stays out"


async def test_a_store_that_began_before_an_opt_out_is_erased_by_it(api: Api) -> None:
    late = NewMemory("guide", "semantic", {"text": "likes rain"})
    async with api.db.tenant("race") as connection:
        await api.plane.shared.users.hashes(connection, "race", ["anna"])
    async with api.db.tenant("race") as connection:
        assert await api.memory.writes.name_people(connection, "race", [(late, "anna", ())]) == set()
        leaving = asyncio.create_task(api.privacy.erasing.opt_out("race", "anna"))
        await asyncio.wait([leaving], timeout=0.3)
        assert not leaving.done(), "the opt-out waits for who has checked and not yet written"
        assert await insert(connection, "race", [late], Analyzer()) == {late.id}
    await leaving
    assert await texts(api, "race") == set()


async def test_a_store_that_began_during_an_opt_out_is_refused(api: Api) -> None:
    users = api.plane.shared.users
    await api.call("POST", "/api/v1/memory/store", 201, namespace="rush", json=memory("opens at nine", None))
    async with api.db.tenant("rush") as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('erasure/' || $1, 0))", "rush")
        about = memory("likes hail", "anna")
        storing = asyncio.create_task(api.call("POST", "/api/v1/memory/store", 200, namespace="rush", json=about))
        await asyncio.wait([storing], timeout=0.3)
        assert not storing.done(), "the store waits for the opt-out that was first"
        person = (await users.hashes(connection, "rush", ["anna"]))["anna"]
        await users.opt_out(connection, "rush", person)
    assert (await storing)["stored"] is False
    assert await texts(api, "rush") == {"opens at nine"}
