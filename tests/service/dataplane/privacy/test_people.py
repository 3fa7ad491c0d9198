"""Feedback of people counts, once for each; opting out leaves no trace."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import nats as nats_client

from learnloop_sdk.trajectory_encoding import redact_text, redact_trajectory

from ..conftest import START_SECONDS, Api, Nats, eventually, running, settings, superuser, trajectory

POLICY = {
    "components": [
        {"name": "return", "type": "environment", "weight": 0.5, "scale": 10},
        {"name": "feedback", "type": "feedback", "weight": 0.5},
    ],
    "normalisation": {"method": "none"},
}


async def _opinion(api: Api, trajectory_id: str, user: str, **what) -> bool:
    body = {"trajectory_id": trajectory_id, "user_id": user, **what}
    return bool((await api.call("POST", "/api/v1/feedback", json=body))["stored"])


async def _reward(api: Api, agent: str, trajectory_id: str):
    reward = (await api.call("GET", f"/api/v1/rewards/history?agent_id={agent}"))["rewards"]
    return next((item for item in reward if item["trajectory_id"] == trajectory_id), None)


async def test_opinions_become_the_feedback_component_also_when_they_come_late(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/liked/revisions/r1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/liked", json={"reward_policy": "liked", "reward_policy_revision": "r1"})
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("late", "liked", 10.0))
    await eventually(lambda: _reward(api, "liked", "late"))
    assert (await _reward(api, "liked", "late"))["components"]["feedback"] == 0.0
    for _ in range(3):  # the same opinion again is the same opinion
        assert await _opinion(api, "late", "anna", thumbs="up")
    await _opinion(api, "late", "ben", stars=3)

    async def joined(expected: float) -> bool:
        return bool((await _reward(api, "liked", "late"))["components"]["feedback"] == expected)

    await eventually(lambda: joined(0.5))
    assert (await _reward(api, "liked", "late"))["raw_reward"] == 0.5 * 1.0 + 0.5 * 0.5
    corrected = await _reward(api, "liked", "late")
    assert corrected["credit_assigned"] == corrected["metadata"]["credit"]["last"] == corrected["reward"]
    await _opinion(api, "late", "anna", thumbs="down")
    await eventually(lambda: joined(-0.5))
    stats = await api.call("GET", "/api/v1/agents/liked/stats")
    assert (stats["trajectories"], stats["rewarded"]) == (1, 1), "weighed again, not counted again"


async def test_feedback_that_is_here_before_its_episode_waits_for_it(api: Api) -> None:
    await _opinion(api, "early", "anna", stars=5)
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("early", "awaited"))

    async def value() -> bool:
        async with api.db.tenant("team-a") as connection:
            query = "SELECT outcome_values ->> 'feedback' FROM trajectories WHERE trajectory_id = 'early'"
            return await connection.fetchval(query) == "1"

    await eventually(value)


async def test_an_opinion_needs_exactly_one_scale_within_its_bounds(api: Api) -> None:
    for wrong in ({}, {"thumbs": "up", "stars": 3}, {"stars": 6}, {"thumbs": "sideways"}, {"stars": 3, "note": "x"}):
        body = {"trajectory_id": "x", "user_id": "anna", **wrong}
        assert "error" in await api.call("POST", "/api/v1/feedback", 422, json=body)


async def test_who_opted_out_is_nowhere(migrated: Callable[[str], str], tmp_path: Path, nats: Nats) -> None:
    dsn, user = migrated(f"opted_out_{os.getpid()}"), "zoe.quiet-4711"
    body = trajectory("q", "listener", metadata={"user_id": user})
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        await api.call("POST", "/api/v1/trajectories", 202, json={**body, "trajectory_id": "before"})
        await _opinion(api, "before", user, thumbs="up")

        async def stored() -> bool:
            async with superuser(dsn) as connection:
                return bool(await connection.fetchval("SELECT count(*) FROM trajectories"))

        await eventually(stored)
        await api.call("PUT", f"/api/v1/users/{user}/opt-out", 204)
        assert not await stored(), "what was there is gone"
        async with superuser(dsn) as connection:
            assert await connection.fetchval("SELECT count(*) FROM agent_memories") == 0
        assert await _opinion(api, "before", user, thumbs="up") is False
        answer = await api.call("POST", "/api/v1/trajectories", 202, json={**body, "trajectory_id": "http"})
        assert answer["stored"] is False
        client = await nats_client.connect(nats.url, connect_timeout=20)
        js = client.jetstream(timeout=START_SECONDS)
        subject = "agent.rl.trajectory.v1.team-a.listener"
        await js.publish(subject, json.dumps({**body, "trajectory_id": "direct"}).encode())
        await js.publish(subject, json.dumps({**body, "surplus": 1}).encode())
        await js.publish(subject, json.dumps({**body, "ended_at": "soon"}).encode())
        await js.publish(subject, json.dumps(trajectory("other", "listener", metadata={"user_id": "ben"})).encode())
        await eventually(stored)
        await eventually(lambda: _settled(js))
        async with superuser(dsn) as connection:
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            for table in tables:
                rows = await connection.fetch(f"SELECT t::text FROM {table['tablename']} t")
                assert not [row for row in rows if user in row["t"]], table
            ids = [row["trajectory_id"] for row in await connection.fetch("SELECT trajectory_id FROM trajectories")]
            assert ids == ["other"]
            labels = await connection.fetchval("SELECT labels ->> 'user_id' FROM trajectories")
            assert labels.startswith("user:")
        assert not [message async for message in _messages(js, "RL_TRAJECTORIES") if user.encode() in message]
        await client.close()
        await api.call("DELETE", f"/api/v1/users/{user}/opt-out", 204)
        assert await _opinion(api, "other", user, thumbs="up") is True


async def test_an_opt_out_reaches_a_person_whose_id_is_an_address_too(api: Api) -> None:
    await api.call("PUT", "/api/v1/users/carla@example.org/opt-out", 204)
    for user, stored in (("carla@example.org", False), ("dora@example.org", True)):
        body = trajectory(f"of-{user[:4]}", "post", metadata={"user_id": user})
        by_sdk = redact_trajectory(body | {"trajectory_id": f"sdk-{user[:4]}"}, redact_text)
        for sent in (body, by_sdk):
            answer = await api.call("POST", "/api/v1/trajectories", 202, json=sent)
            assert answer["stored"] is stored, sent["metadata"]


async def _settled(js) -> bool:
    info = await js.consumer_info("RL_TRAJECTORIES", "learnloop-store")
    return info.num_pending == 0 and info.num_ack_pending == 0


async def _messages(js, stream: str):
    state = (await js.stream_info(stream)).state
    for sequence in range(max(1, state.first_seq), state.last_seq + 1):
        try:
            yield (await js.get_msg(stream, sequence)).data or b""
        except nats_client.js.errors.NotFoundError:
            continue
