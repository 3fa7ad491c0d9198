"""The audit chain: who did what is on record, and what is done to the record itself is found."""

import json
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from learnloop_dataplane.audit.chain import digest_of

from ..conftest import POLICY, Api, eventually, running, settings, superuser, trajectory

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def dsn(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Each test harms a chain of its own."""
    return migrated(f"audit_{abs(hash(request.node.name))}_{os.getpid()}")


@pytest.fixture
async def audited(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path)) as api:
        yield api


async def _story(api: Api) -> list[dict]:
    """Some of everything, and the records of it."""
    await api.call("PUT", "/api/v1/rewards/policies/p/revisions/r1", json=POLICY)
    for _ in range(2):  # the second time changes nothing, and leaves nothing
        body = {"reward_policy": "p", "reward_policy_revision": "r1"}
        await api.call("PUT", "/api/v1/agents/walker", json=body)
    for text in ("the gate is open", "the gate is shut"):
        memory = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": text}}
        stored = await api.call("POST", "/api/v1/memory/store", 201, json=memory)
    await api.call("POST", "/api/v1/memory/delete", json={"agent_id": "walker", "ids": [stored["id"]]})
    await api.call("POST", "/api/v1/memory/forget", json={"agent_id": "walker", "budget": 0})
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("t1", "walker"))
    opinion = {"trajectory_id": "t1", "user_id": "anna", "thumbs": "up"}
    await api.call("POST", "/api/v1/feedback", json=opinion)
    await api.call("PUT", "/api/v1/users/zoe/opt-out", 204)
    deployed = {
        "model_deployment": "walker",
        "revision": "r2",
        "uri": "s3://models/r2",
        "verdict": "passed",
        "deployed_at": NOON.isoformat(),
    }
    await api.call("PUT", "/api/v1/models/walker/deployed", json=deployed)

    async def records():
        rows = (await api.call("GET", "/api/v1/audit/records"))["records"]
        return rows if len(rows) >= 12 else None

    return list(await eventually(records))


async def test_each_record_is_a_line_on_standard_output_once_it_is_in_the_chain(dsn, tmp_path, capfd):
    async with running(**settings(dsn, tmp_path)) as api:
        records = await _story(api)
        lines = {}

        async def all_recorded() -> bool:
            for line in capfd.readouterr().out.splitlines():
                if line.startswith("{") and (item := json.loads(line)).get("stream") == "audit":
                    assert item["hash"] not in lines, "told twice"
                    lines[item["hash"]] = item
            return {record["hash"] for record in records} <= set(lines)

        await eventually(all_recorded)
    for record in records:
        line = lines[record["hash"]]
        assert line["namespace"] == "team-a"
        assert {name: line[name] for name in ("seq", "actor", "action", "subject", "detail")} == {
            name: record[name] for name in ("seq", "actor", "action", "subject", "detail")
        }


async def test_what_was_done_is_on_record_once_with_who_did_it(audited: Api) -> None:
    records = await _story(audited)
    actions = [(record["action"], record["subject"]) for record in records]
    for expected in (
        ("reward.policy.published", "reward-policy/p"),
        ("agent.registered", "agent/walker"),
        ("memory.stored", "agent/walker"),
        ("memory.deleted", "agent/walker"),
        ("memory.forgotten", "agent/walker"),
        ("feedback.given", "trajectory/t1"),
        ("model.deployed", "model-deployment/walker"),
    ):
        assert expected in actions
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert actions.count(("agent.registered", "agent/walker")) == 1
    by_action = {record["action"]: record for record in records}
    assert by_action["memory.deleted"]["actor"] == "anonymous"
    assert by_action["user.opted-out"]["subject"].startswith("user/user:"), "no name of a person is in the chain"
    stored = [record["actor"] for record in records if record["action"] == "memory.stored"]
    assert sorted(stored) == ["anonymous", "anonymous", "system:learnloop"], "the episode's memory had no caller"
    one = await audited.call("GET", "/api/v1/audit/records?action=memory.deleted")
    assert [record["action"] for record in one["records"]] == ["memory.deleted"]
    first = await audited.call("GET", "/api/v1/audit/records?limit=3")
    second = await audited.call("GET", f"/api/v1/audit/records?limit=3&after={first['next']}")
    assert [record["seq"] for record in first["records"] + second["records"]] == [1, 2, 3, 4, 5, 6]
    last = await audited.call("GET", "/api/v1/audit/records?newest=true&limit=2")
    deep = await audited.call("GET", "/api/v1/audit/records?newest=true&limit=1&action=agent.registered")
    assert deep["records"] == [by_action["agent.registered"]], "however many others came since"
    head = await audited.call("GET", "/api/v1/audit/verify")
    assert [record["seq"] for record in last["records"]] == [head["records"] - 1, head["records"]]
    assert last["records"][-1]["hash"] == head["head"], "an auditor who keeps the head knows it again"
    assert (await audited.call("GET", "/api/v1/audit/records", namespace="blue"))["records"] == []


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_batch_leaves_one_record_for_each_of_its_agents(audited: Api, keyed: bool) -> None:
    memories = [
        {"agent_id": agent, "memory_type": "semantic", "content": {"text": text}}
        | ({"idempotency_key": f"k-{text}"} if keyed else {})
        for agent, text in (("walker", "a"), ("runner", "b"), ("walker", "c"))
    ]
    stored = await audited.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})
    first, alone, last = stored["ids"]
    if keyed:
        again = await audited.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})
        assert again["ids"] == stored["ids"]
    await audited.sealer.run("team-a")
    records = (await audited.call("GET", "/api/v1/audit/records?action=memory.stored"))["records"]
    both = digest_of([UUID(first), UUID(last)])
    assert {(record["actor"], record["subject"]): record["detail"] for record in records} == {
        ("anonymous", "agent/runner"): {"id": alone},
        ("anonymous", "agent/walker"): {"count": 2, "first": first, "last": last, "ids_sha256": both},
    }
    assert len(records) == 2


async def test_a_change_that_is_not_made_leaves_no_record(audited: Api) -> None:
    body = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": "a"}, "idempotency_key": "k"}
    await audited.call("POST", "/api/v1/memory/store", 201, json=body)
    await audited.call("POST", "/api/v1/memory/store", 200, json=body)
    await audited.call("POST", "/api/v1/memory/store", 409, json={**body, "content": {"text": "b"}})
    await audited.sealer.run("team-a")
    assert len((await audited.call("GET", "/api/v1/audit/records"))["records"]) == 1


async def test_the_chain_only_grows_for_the_service_and_for_the_owner(audited: Api, dsn: str) -> None:
    await _story(audited)
    async with audited.db.tenant("team-a") as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
            await connection.execute("DELETE FROM audit_log")
    async with superuser(dsn) as connection:
        for statement in ("UPDATE audit_log SET actor = 'me'", "DELETE FROM audit_log", "TRUNCATE audit_log"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
                await connection.execute(statement)
