"""Memories that outlive the episode they came from: still known as its person's when the episode is gone by age."""

import orjson

from learnloop_dataplane.erasure.retention import Retention

from ..conftest import Api, eventually, superuser, trajectory

EPISODES = {**{f"a{number}": "anna" for number in range(5)}, "b0": "ben"}


async def _lived(api: Api, dsn: str, namespace: str) -> None:
    """Episodes of two people, a note of a session, one of an origin, a pin and a distilled fact."""

    async def post(path: str, status: int = 200, **body: object) -> None:
        await api.call("POST", f"/api/v1/{path}", status, namespace=namespace, json=body)

    for identity, user in EPISODES.items():
        await post("trajectories", 202, **trajectory(identity, "helper", metadata={"user_id": user}))
    for text, tie in (("likes tea", {"session_id": "a1"}), ("has a dog", {"origin": "trajectory/a2"})):
        note = {"agent_id": "helper", "memory_type": "semantic", "content": {"text": text}, **tie}
        await post("memory/store", 201, **note)

    async def remembered() -> bool:
        async with superuser(dsn) as connection:
            query = "SELECT count(*) FROM agent_memories WHERE namespace = $1 AND source = 'episode'"
            return bool(await connection.fetchval(query, namespace) == len(EPISODES))

    await eventually(remembered)
    await post("memory/consolidate", agent_id="helper")
    async with superuser(dsn) as connection:
        pin = "UPDATE agent_memories SET pinned = true WHERE namespace = $1 AND origin = 'trajectory/a0'"
        await connection.execute(pin, namespace)


async def _aged(api: Api, dsn: str, namespace: str) -> None:
    """A hundred days pass for the episodes, and retention runs."""
    async with superuser(dsn) as connection:
        aged = "UPDATE trajectories SET received_at = received_at - interval '100 days' WHERE namespace = $1"
        await connection.execute(aged, namespace)
    async with superuser(dsn) as connection:

        async def none_left() -> bool:
            await Retention(api.db, 30).run()  # passes by an episode that is being written to
            return not await connection.fetchval("SELECT count(*) FROM trajectories WHERE namespace = $1", namespace)

        assert await eventually(none_left)


async def _held(dsn: str, namespace: str) -> list[tuple[str, str, str]]:
    """Agent, source and origin of every memory."""
    async with superuser(dsn) as connection:
        query = "SELECT agent_id, source, origin FROM agent_memories WHERE namespace = $1 ORDER BY 1, 2, 3"
        return [tuple(row) for row in await connection.fetch(query, namespace)]


async def test_an_erasure_reaches_what_outlived_its_episodes(api: Api, dsn: str) -> None:
    namespace = "outlived"
    await _lived(api, dsn, namespace)
    await _aged(api, dsn, namespace)
    fact = ("consolidation", "distilled/semantic/cartpole")
    pinned, notes = ("episode", "trajectory/a0"), [("api", ""), ("api", "trajectory/a2")]
    before = await _held(dsn, namespace)
    assert {("helper", *item) for item in (fact, pinned, *notes)} < set(before)
    receipt = await api.call("POST", "/api/v1/erasure", namespace=namespace, json={"user_id": "anna"})
    left = await _held(dsn, namespace)
    assert receipt["rows"]["agent_memories"] == len(before) - len(left)
    assert left == [("helper", "episode", "trajectory/b0")]


async def test_an_export_of_what_outlived_its_episodes_says_whose_it_is(api: Api, dsn: str) -> None:
    await _lived(api, dsn, "exported")
    await _aged(api, dsn, "exported")
    lines = (await api.call("GET", "/api/v1/memory/export?agent_id=helper", namespace="exported")).text.splitlines()
    rows = [orjson.loads(line) for line in lines]
    people = {line["origin"] or "session": line["user_id"] for line in rows}
    others = {people[f"trajectory/a{number}"] for number in range(5)} | {people["session"]}
    [anna] = others
    assert people["trajectory/b0"] not in (None, anna)
    assert sum(line["user_id"] == anna for line in rows) == 7, "five episodes, a note of a session and one of an origin"
    hers = [line for line in rows if anna in line["user_ids"]]
    assert {line["source"] for line in hers if line["user_id"] is None} == {"consolidation"}, "distilled from them"
    await api.call("PUT", "/api/v1/users/anna/opt-out", 204, namespace="exported")
    path, body = "/api/v1/memory/import?agent_id=again", "\n".join(lines)
    done = await api.call("POST", path, 201, namespace="exported", content=body)
    assert done["opted_out"] == len(hers)
