"""Erasure deletes every copy, keeps what was erased from coming back, and is confirmed by a receipt."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats as nats_client
import pytest

from testing.servers.ports import held_port

from ..conftest import POLICY, START_SECONDS, Api, Nats, eventually, running, settings, superuser, trajectory

KEY = base64.b64encode(bytes(range(32))).decode()
SUBJECT = "agent.rl.trajectory.v1.team-a.helper"
ANNA = "anna.erased-4711"


@pytest.fixture
def dsn(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Each test counts rows of a database of its own."""
    return migrated(f"erasure_{abs(hash(request.node.name))}_{os.getpid()}")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Each test counts messages of streams of its own."""
    with held_port() as port:
        server = Nats(tmp_path / "nats", port).start()
        yield server
        server.kill()


@pytest.fixture
async def wired(dsn: str, tmp_path: Path, nats: Nats) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        await api.call("PUT", "/api/v1/rewards/policies/p/revisions/r1", json=POLICY)
        await api.call("PUT", "/api/v1/agents/helper", json={"reward_policy": "p", "reward_policy_revision": "r1"})
        yield api


def episode(identity: str, user: str | None, **changes) -> dict:
    """One that `user` had with the agent `helper`."""
    return trajectory(identity, "helper", metadata={"user_id": user} if user else {}, **changes)


async def _lived(api: Api, dsn: str, prefix: str, users: dict[str, str]) -> None:
    """Episodes with rewards, feedback, memories and recalls."""
    recalled = await api.call("POST", "/api/v1/memory/retrieve", json={"agent_id": "helper", "context": "cartpole"})
    for identity, user in users.items():
        body = episode(f"{prefix}{identity}", user, retrieval_ids=[recalled["retrieval_id"]] if user == ANNA else [])
        await api.call("POST", "/api/v1/trajectories", 202, json=body)
        opinion = {"trajectory_id": f"{prefix}{identity}", "user_id": user, "thumbs": "up"}
        await api.call("POST", "/api/v1/feedback", json=opinion)

    async def weighed() -> bool:
        async with superuser(dsn) as connection:
            query = (
                "SELECT count(*) FROM trajectories t JOIN agent_memories m ON m.origin = 'trajectory/' || trajectory_id"
                " WHERE reward IS NOT NULL AND trajectory_id LIKE $1 AND outcome_values ? 'feedback'"
                " AND NOT EXISTS (SELECT 1 FROM reward_history WHERE published_at IS NULL)"
                " AND NOT EXISTS (SELECT 1 FROM event_outbox WHERE published_at IS NULL)"
            )
            return bool(await connection.fetchval(query, f"{prefix}%") == len(users))

    await eventually(weighed)


async def _traces(dsn: str, texts: list[str]) -> list[str]:
    """Rows of any table, but the audit's, that hold one of these texts."""
    async with superuser(dsn) as connection:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        names = [row["tablename"] for row in tables if not row["tablename"].startswith("audit_")]
        rows = [row["t"] for name in names for row in await connection.fetch(f"SELECT t::text FROM {name} t")]
    return [row for row in rows if any(text in row for text in texts)]


async def _in_streams(js, text: bytes, *streams: str) -> list[bytes]:
    messages = []
    for stream in streams or ("RL_TRAJECTORIES", "RL_REWARDS"):
        state = (await js.stream_info(stream)).state
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            try:
                message = await js.get_msg(stream, sequence)
            except nats_client.js.errors.NotFoundError:
                continue
            if text in (message.data or b""):
                messages.append(message.data)
    return messages


async def _settled(js) -> bool:
    info = await js.consumer_info("RL_TRAJECTORIES", "learnloop-store")
    return bool(info.num_pending == 0 and info.num_ack_pending == 0)


async def _jetstream(nats: Nats):
    client = await nats_client.connect(nats.url, connect_timeout=20)
    return client.jetstream(timeout=START_SECONDS)


async def test_a_person_is_erased_everywhere_and_nobody_else_is(wired: Api, dsn: str, nats: Nats) -> None:
    await _lived(wired, dsn, "e-", {"a1": ANNA, "a2": ANNA, "b1": "ben"})
    js = await _jetstream(nats)
    broken = {**episode("e-broken", ANNA), "surplus": 1}
    await js.publish(SUBJECT, json.dumps(broken).encode())
    await eventually(lambda: _settled(js))
    async with wired.db.tenant("team-a") as connection:
        pseudonym = (await wired.plane.shared.users.hashes(connection, "team-a", [ANNA]))[ANNA]
    receipt = await wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA})
    assert (receipt["subject"], receipt["warehouse"]) == (f"user/{pseudonym}", "none")
    expected = {"trajectories": 2, "training_transitions": 2, "reward_history": 2, "user_feedback": 2}
    assert {name: receipt["rows"][name] for name in expected} == expected
    assert receipt["rows"]["agent_memories"] >= 2
    assert receipt["rows"]["recall_log"] == 1
    assert receipt["messages"]["RL_REWARDS"] >= 2
    assert not [row for row in await _traces(dsn, ["e-a1", "e-a2", ANNA]) if "erased" not in row]
    for text in (b"e-a1", b"e-a2", b"e-broken", ANNA.encode(), pseudonym.encode()):
        assert not await _in_streams(js, text)
    history = (await wired.call("GET", "/api/v1/rewards/history?agent_id=helper"))["rewards"]
    assert [item["trajectory_id"] for item in history] == ["e-b1"]
    assert await _in_streams(js, b"e-b1")
    again = await wired.call("POST", "/api/v1/erasure", json={"user_id": pseudonym})
    assert set(again["rows"].values()) == {0}
    assert set(again["messages"].values()) == {0}
    assert again["subject"] == receipt["subject"]


async def test_an_event_on_its_way_to_the_stream_is_waited_for_and_erased(wired: Api, dsn: str, nats: Nats) -> None:
    reached, go, bus = asyncio.Event(), asyncio.Event(), wired.bus
    publish = bus.publish_all

    async def slow(events) -> None:
        reached.set()
        await go.wait()
        await publish(events)

    bus.publish_all = slow
    await wired.call("POST", "/api/v1/trajectories", 202, json=episode("w-a1", ANNA))
    await reached.wait()
    erasing = asyncio.create_task(wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA}))

    async def waits() -> bool:
        async with superuser(dsn) as connection:
            query = (
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            return bool(await connection.fetchval(query)) or erasing.done()

    await eventually(waits)
    assert not erasing.done(), "its event was read and is not in the stream yet"
    go.set()
    assert (await erasing)["messages"]["RL_REWARDS"] == 1
    js = await _jetstream(nats)
    assert not await _in_streams(js, b"w-a1")


async def test_the_receipt_has_its_place_in_the_chain(wired: Api, dsn: str) -> None:
    receipt = await wired.call("POST", "/api/v1/erasure", json={"agent_id": "absent"})
    page = await wired.call("GET", f"/api/v1/audit/records?after={receipt['audit_seq'] - 1}&limit=1")
    [record] = page["records"]
    assert (record["action"], record["hash"]) == ("agent.erased", receipt["audit_hash"])
    assert record["detail"]["erasure_id"] == receipt["erasure_id"]
    report = await wired.call("GET", "/api/v1/audit/verify")
    assert report["ok"]
    assert report["records"] >= receipt["audit_seq"]


async def test_what_is_sent_again_does_not_come_back_and_what_is_new_does(wired: Api, dsn: str, nats: Nats) -> None:
    await _lived(wired, dsn, "r-", {"a1": ANNA})
    await wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA})
    js = await _jetstream(nats)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    sent = [
        episode("r-a1", ANNA),  # again, past the stream's window of duplicates
        episode("r-a1", None, ended_at=later),  # its id alone
        episode("r-a9", ANNA),  # was still with its sender
        episode("r-a8", ANNA, surplus=1),  # the same, and no consumer takes it
    ]
    for number, body in enumerate(sent):
        await js.publish(SUBJECT, json.dumps(body).encode(), headers={"Nats-Msg-Id": f"again-{number}"})
    fresh = episode("r-new", ANNA, started_at=later, ended_at=later)
    await js.publish(SUBJECT, json.dumps(fresh).encode())

    async def stored() -> list[str]:
        async with superuser(dsn) as connection:
            return [row["trajectory_id"] for row in await connection.fetch("SELECT trajectory_id FROM trajectories")]

    await eventually(stored)
    await eventually(lambda: _settled(js))
    assert await stored() == ["r-new"], "an erasure is about the past; an opt-out is about the future"
    for text in (b"r-a1", b"r-a9", b"r-a8"):
        assert not await _in_streams(js, text)
    opinion = {"trajectory_id": "r-a1", "user_id": "ben", "thumbs": "up"}
    assert (await wired.call("POST", "/api/v1/feedback", json=opinion))["stored"] is False


async def test_episodes_that_arrive_while_they_are_erased_are_gone_as_well(wired: Api, dsn: str) -> None:
    async def arrive(number: int) -> None:
        await wired.call("POST", "/api/v1/trajectories", 202, json=episode(f"c-{number}", ANNA))

    erasing = [wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA}) for _ in range(3)]
    await asyncio.gather(*(arrive(number) for number in range(40)), *erasing)
    await wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA})

    async def gone() -> bool:
        async with superuser(dsn) as connection:
            return not await connection.fetchval("SELECT count(*) FROM trajectories WHERE trajectory_id LIKE 'c-%'")

    await eventually(gone)
    await asyncio.sleep(0.5)
    assert await gone()


async def test_what_was_made_out_of_the_erased_goes_with_it(wired: Api, dsn: str) -> None:
    await _lived(wired, dsn, "d-", {f"a{number}": ANNA for number in range(3)} | {f"b{n}": "ben" for n in range(3)})
    await wired.call("POST", "/api/v1/memory/consolidate", json={"agent_id": "helper"})
    lines = (await wired.call("GET", "/api/v1/memory/export?agent_id=helper")).text
    await wired.call("POST", "/api/v1/memory/import?agent_id=copy", 201, content=lines)
    note = {"agent_id": "helper", "memory_type": "semantic", "content": {"text": "likes tea"}, "session_id": "d-a1"}
    await wired.call("POST", "/api/v1/memory/store", 201, json=note)
    await wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA})
    async with superuser(dsn) as connection:
        rows = await connection.fetch("SELECT agent_id, source, content::text AS content FROM agent_memories")
    assert not [row for row in rows if "d-a" in row["content"] or "tea" in row["content"]]
    assert not [row for row in rows if row["source"] == "consolidation"], "it counted episodes that are gone"
    assert sorted(row["agent_id"] for row in rows) == ["copy"] * 3 + ["helper"] * 3
    done = await wired.call("POST", "/api/v1/memory/consolidate", json={"agent_id": "helper"})
    assert done["distilled"] == 0, "three episodes of somebody else are too few"


async def test_an_agent_is_erased_and_counts_from_zero(wired: Api, dsn: str) -> None:
    await _lived(wired, dsn, "g-", {"a1": ANNA, "b1": "ben"})
    receipt = await wired.call("POST", "/api/v1/erasure", json={"agent_id": "helper"})
    assert receipt["rows"]["trajectories"] == 2
    stats = await wired.call("GET", "/api/v1/agents/helper/stats")
    assert (stats["trajectories"], stats["rewarded"]) == (0, 0)
    assert not [row for row in await _traces(dsn, ["g-a1", "g-b1"]) if "erased" not in row]


async def test_the_feedback_of_an_erased_person_no_longer_counts(wired: Api, dsn: str) -> None:
    await _lived(wired, dsn, "f-", {"b1": "ben"})
    opinion = {"trajectory_id": "f-b1", "user_id": ANNA, "thumbs": "down"}
    await wired.call("POST", "/api/v1/feedback", json=opinion)

    async def mean(expected: str | None) -> bool:
        async with superuser(dsn) as connection:
            query = "SELECT outcome_values ->> 'feedback' FROM trajectories WHERE trajectory_id = 'f-b1'"
            return bool(await connection.fetchval(query) == expected)

    await eventually(lambda: mean("0"))
    await wired.call("POST", "/api/v1/erasure", json={"user_id": ANNA})
    assert await mean("1")
    await wired.call("POST", "/api/v1/erasure", json={"user_id": "ben"})
    assert await _traces(dsn, ["f-b1"]) == []


async def test_an_erasure_names_exactly_one_subject(wired: Api) -> None:
    for body in ({}, {"user_id": "a", "agent_id": "b"}, {"user_id": ""}, {"agent_id": "*"}):
        assert "error" in await wired.call("POST", "/api/v1/erasure", 422, json=body)
