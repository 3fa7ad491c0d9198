"""What feedback taught goes with the memories: into a fork, back with a restore, through a file."""

import json
from typing import Any
from uuid import UUID

import pytest

from ..conftest import Api, superuser
from ..recall.test_recall import ask, indexed, store

BASE = "/api/v1/memory"
HINTS = [f"a hint about the maze, {side}" for side in ("north", "east", "south", "west", "left", "right")]
AGED = """
UPDATE {table} t SET {column} = now() - make_interval(days => u.place::int)
FROM unnest($1::uuid[]) WITH ORDINALITY AS u(id, place) WHERE t.{key} = u.id
"""


async def post(api: Api, path: str, status: int = 201, **body: Any) -> Any:
    return await api.call("POST", f"{BASE}/{path}", status, json=body)


async def outcomes(api: Api, agent: str) -> list[float]:
    rows = (await api.call("GET", f"{BASE}/entries?agent_id={agent}"))["memories"]
    return [row["helped"] - row["hurt"] for row in rows]


async def order(api: Api, agent: str) -> list[str]:
    """All of the agent's hints by rank: where all are shown none is explored."""
    await indexed(api, agent, len(HINTS))
    answer = await ask(api, agent, "a hint about the maze", k=len(HINTS))
    return [memory["content"]["text"] for memory in answer["memories"]]


async def teach(api: Api, agent: str, helpful: str, times: int) -> None:
    for _ in range(times):
        answer = await ask(api, agent, "a hint about the maze", k=len(HINTS))
        [identity] = [memory["id"] for memory in answer["memories"] if memory["content"]["text"] == helpful]
        await post(api, "feedback", 200, retrieval_id=answer["retrieval_id"], helpful=[identity])


async def taught(api: Api, dsn: str, agent: str) -> None:
    """An agent with hints of one to six days of age, the third of which has helped."""
    ids = await store(api, agent, HINTS)
    await indexed(api, agent, len(ids))
    async with superuser(dsn) as connection:
        uuids = [UUID(identity) for identity in ids]
        await connection.execute(AGED.format(table="agent_memories", column="created_at", key="id"), uuids)
        await connection.execute(AGED.format(table="memory_index", column="said_at", key="memory_id"), uuids)
    await teach(api, agent, HINTS[2], 4)


async def test_a_fork_and_a_restore_rank_as_the_agent_did_when_the_snapshot_was_taken(api: Api, dsn: str) -> None:
    await taught(api, dsn, "elder")
    then, learned = await order(api, "elder"), await outcomes(api, "elder")
    assert then[0] == HINTS[2]
    await post(api, "snapshots", agent_id="elder", name="wise")
    await teach(api, "elder", HINTS[5], 12)  # misled
    assert await order(api, "elder") != then
    assert await outcomes(api, "elder") != learned
    await post(api, "snapshots/fork", agent_id="elder", name="wise", into="junior")
    assert await order(api, "junior") == then
    assert await outcomes(api, "junior") == learned
    await post(api, "snapshots/restore", 200, agent_id="elder", name="wise")
    assert await order(api, "elder") == then
    assert await outcomes(api, "elder") == learned
    await teach(api, "junior", HINTS[5], 12)
    assert await order(api, "junior") != then, "what it was given is a beginning, not the end"
    assert await order(api, "elder") == then, "and its own"


async def test_before_anything_was_learned_there_is_nothing_to_hand_on(api: Api, dsn: str) -> None:
    await store(api, "blank", HINTS)
    await post(api, "snapshots", agent_id="blank", name="new")
    nothing = await outcomes(api, "blank")
    await teach(api, "blank", HINTS[0], 2)
    await post(api, "snapshots/fork", agent_id="blank", name="new", into="blank-too")
    await post(api, "snapshots/restore", 200, agent_id="blank", name="new")
    assert await outcomes(api, "blank") == await outcomes(api, "blank-too") == nothing
    entries = (await api.call("GET", f"{BASE}/entries?agent_id=blank"))["memories"]
    assert {entry["helped"] for entry in entries} == {0.0}


async def test_an_import_keeps_what_helped_and_a_file_that_claims_too_much_is_outvoted(api: Api, dsn: str) -> None:
    await taught(api, dsn, "scholar")
    lines = await export(api, "scholar")
    [helped] = [line["content"]["text"] for line in lines if line["helped"] > 0]
    assert helped == HINTS[2]
    await bring(api, "reader", lines)
    assert await order(api, "reader") == await order(api, "scholar")
    liar = next(line for line in lines if line["content"]["text"] == HINTS[4])
    liar |= {"helped": 1e9, "hurt": 0}
    await bring(api, "dupe", lines)
    await bring(api, "dupe", lines)
    assert (await order(api, "dupe"))[0] == HINTS[4]
    entries = (await api.call("GET", f"{BASE}/entries?agent_id=dupe"))["memories"]
    assert [entry["helped"] for entry in entries if entry["content"]["text"] == HINTS[4]] == [20.0], "once, and no more"
    ages = {line["content"]["text"]: line["created_at"] for line in lines}
    assert {line["content"]["text"]: line["remembered_at"] for line in await export(api, "dupe")} == ages


@pytest.mark.parametrize("claim", [{"helped": -1}, {"hurt": 1e10}, {"helped": "much"}])
async def test_a_file_with_feedback_that_cannot_be_is_refused(api: Api, claim: dict[str, Any]) -> None:
    line = {"id": str(UUID(int=7)), "memory_type": "semantic", "content": {"text": "x"}} | claim
    refused = await api.call("POST", f"{BASE}/import?agent_id=refuser", 422, content=json.dumps(line))
    assert refused["error"]["field"] in claim


async def export(api: Api, agent: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await api.call("GET", f"{BASE}/export?agent_id={agent}")).text.splitlines()]


async def bring(api: Api, agent: str, lines: list[dict[str, Any]]) -> None:
    content = "\n".join(json.dumps(line) for line in lines)
    await api.call("POST", f"{BASE}/import?agent_id={agent}", 201, content=content)
