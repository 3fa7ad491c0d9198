"""The victim: a namespace that has a row in every table."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import asyncpg
import httpx

from bench.pipeline.intruders import MARK, VICTIM, House
from learnloop_dataplane.postgres.row_level_security import UNSCOPED

TIME = "2026-01-31T12:00:00Z"
TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'namespace'
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND NOT c.relname = ANY($1) ORDER BY c.relname
"""
COLUMNS = """
SELECT attname AS name, format_type(atttypid, atttypmod) AS type, attnotnull AS needed FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND NOT atthasdef AND attidentity = ''
"""
MADE_UP = {
    "text": f"'{MARK}'",
    "text[]": f"ARRAY['{MARK}']",
    "uuid": "gen_random_uuid()",
    "uuid[]": "ARRAY[gen_random_uuid()]",
    "jsonb": f"""'{{"mark": "{MARK}"}}'""",
    "bytea": f"'{MARK}'",
    "timestamp with time zone": "now()",
    "boolean": "true",
} | dict.fromkeys(("smallint", "integer", "bigint", "real", "double precision"), "1")
"""A value for each SQL type, as an expression."""


async def tables(connection: Any) -> list[str]:
    """Every table whose rows belong to a namespace, as the catalogue has them."""
    return [row["relname"] for row in await connection.fetch(TABLES, list(UNSCOPED))]


async def plant(house: House) -> list[str]:
    """Gives the victim what the API makes of a busy day; returns the ids an attacker may have heard of."""
    headers = {"Authorization": f"Bearer {house.cluster.token(VICTIM)}"}

    async def send(method: str, path: str, **body: Any) -> Any:
        answer = await house.client.request(method, path, headers=headers, json=body or None)
        return _body(method, path, answer)

    async def raw(path: str, **more: str) -> None:
        body = MARK.encode()
        digest = {"x-learnloop-sha256": sha256(body).hexdigest()} | more
        answer = await house.client.put(path, headers=headers | digest, content=body)
        _body("PUT", path, answer)

    scored = {"name": "right", "type": "evaluator", "weight": 0.5, "evaluator": {"type": "exact"}}
    components = [{"name": "return", "type": "environment", "weight": 0.5}, scored]
    await send("PUT", "/api/v1/rewards/policies/secret/revisions/r1", components=components)
    await send("PUT", "/api/v1/agents/walker", reward_policy="secret", reward_policy_revision="r1")
    memory = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": f"the code is {MARK}"}}
    stored = await send("POST", "/api/v1/memory/store", **memory)
    step = {"observation": MARK, "action": 1, "reward": 1.0}
    episode = {"trajectory_id": "t-secret", "agent": "walker", "task": MARK, "episode_id": "e", "policy_revision": "r"}
    times = {"started_at": TIME, "ended_at": TIME, "metadata": {"user_id": "anna"}}
    outcome = {"status": "completed", "episode_return": 1.0, "success": True}
    result = {"output": MARK, "expected": MARK, "task_type": "secret", "agents": ["walker", "helper"]}
    recalled = await send("POST", "/api/v1/memory/retrieve", agent_id="walker", context=MARK)
    recall = {"retrieval_ids": [recalled["retrieval_id"]]}
    await send(
        "POST", "/api/v1/trajectories", **episode, **times, **recall, outcome=outcome, steps=[step], result=result
    )
    await send("POST", "/api/v1/feedback", trajectory_id="t-secret", user_id="anna", thumbs="up")
    await send("PUT", "/api/v1/users/zoe/opt-out")
    deployed = {"model_deployment": "walker", "revision": "r", "uri": f"s3://{MARK}", "deployed_at": TIME}
    await send("PUT", "/api/v1/models/walker/deployed", **deployed)
    beat = {"job": "walker-1", "attempt": 0, "phase": "done", "step": 1, "total_steps": 1, "world_size": 1, "at": TIME}
    await send("PUT", "/api/v1/training/runs/walker-1/heartbeat", **beat, steps_per_second=1.0, message=MARK)
    await raw("/api/v1/training/runs/walker-1/checkpoint", **{"x-learnloop-step": "1", "x-learnloop-agent": "walker"})
    await raw("/api/v1/artifacts")
    await send("PUT", "/api/v1/agents/walker/memory-budget", memories=1000)
    for _ in range(300):
        rewards = await send("GET", "/api/v1/rewards/history?agent_id=walker")
        records = await send("GET", "/api/v1/audit/records")
        parts = await send("GET", "/api/v1/rewards/credits?agent_id=helper")
        if rewards["rewards"] and parts["credits"] and len(records["records"]) > 5:
            break
    return [stored["id"], recalled["retrieval_id"], "t-secret", "walker", "secret", "walker-1", "snap", MARK]


def _body(method: str, path: str, answer: httpx.Response) -> Any:
    if answer.status_code >= 300:
        raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
    return answer.json() if answer.content else None


@asynccontextmanager
async def complete(dsn: str) -> AsyncIterator[Counter[str]]:
    """Writes a row, as a superuser, into each table that the API left empty; the victim's rows by table.

    Where the service deletes rows by itself, one is locked until the end: it is still there when the attackers come.
    """
    connection, holder = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        # What is planted may refer to rows that are not there: no foreign key is looked at for it.
        await connection.execute("SET session_replication_role = replica")
        for table, count in (await held(connection)).items():
            if not count and not swept(table):
                await connection.execute(await _row(connection, table))
        async with holder.transaction():
            for table in filter(swept, await tables(connection)):
                while not await holder.fetch(f"SELECT FROM {table} WHERE namespace = $1 FOR UPDATE", VICTIM):
                    await connection.execute(await _row(connection, table))
            yield await held(connection)
    finally:
        await holder.close()
        await connection.close()


def queue(table: str) -> bool:
    """Whether rows wait here until the service has seen to them."""
    return table.endswith("_pending")


def swept(table: str) -> bool:
    """Whether the service deletes rows of this table by itself: a queue's, and words of agents that are not large."""
    return queue(table) or table == "memory_words"


async def _row(connection: Any, table: str) -> str:
    """The statement that inserts a row of the victim's, every column filled whose type is known."""
    columns = {row["name"]: row for row in await connection.fetch(COLUMNS, table)}
    values = {name: MADE_UP[row["type"]] for name, row in columns.items() if row["type"] in MADE_UP}
    if unknown := [name for name, row in columns.items() if row["needed"] and name not in values]:
        raise SystemExit(f"{table}: no value is known for the types of {', '.join(unknown)}; add them to MADE_UP")
    values["namespace"] = f"'{VICTIM}'"
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())}) ON CONFLICT DO NOTHING"


async def held(connection: Any) -> Counter[str]:
    """The victim's rows by table, as a superuser sees them; tables without one are there with 0."""
    counted: Counter[str] = Counter()
    for table in await tables(connection):
        counted[table] = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE namespace = $1", VICTIM)
    return counted
