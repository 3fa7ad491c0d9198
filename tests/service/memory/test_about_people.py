"""Memories that say whom they are about go with that person."""

from typing import Any

from .conftest import Api, superuser


def memory(text: str, user: str | None, agent: str = "guide") -> dict[str, Any]:
    body = {"agent_id": agent, "memory_type": "semantic", "content": {"text": text}}
    return body if user is None else body | {"user_id": user}


async def texts(api: Api, namespace: str) -> set[str]:
    found = await api.call("GET", "/api/v1/memory/entries?agent_id=guide", namespace=namespace)
    return {item["content"]["text"] for item in found["memories"]}


async def test_an_opt_out_deletes_what_is_about_the_person_and_nothing_more_is_stored(api: Api, dsn: str) -> None:
    async def store(text: str, user: str | None, status: int = 201) -> Any:
        return await api.call("POST", "/api/v1/memory/store", status, namespace="people", json=memory(text, user))

    await store("likes window seats", "anna")
    await store("likes aisle seats", "ben")
    await store("the desk opens at nine", None)
    async with superuser(dsn) as connection:
        kept = await connection.fetchval("SELECT string_agg(m::text, ' ') FROM agent_memories m")
        assert "anna" not in kept, "known by a pseudonym only"
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
    snapshot = {"agent_id": "guide", "name": "before"}
    await api.call("POST", "/api/v1/memory/snapshots", 201, namespace="here", json=snapshot)
    await api.call("POST", "/api/v1/memory/snapshots/fork", 201, namespace="here", json=snapshot | {"into": "twin"})
    receipt = await api.call("POST", "/api/v1/erasure", namespace="here", json={"user_id": "anna"})
    assert receipt["rows"]["agent_memories"] == 2
    assert await texts(api, "here") == set()
    assert await texts(api, "there") == {"prefers tea"}
