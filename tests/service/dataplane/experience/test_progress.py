"""The figures of an agent by week, counted from what is stored, and from nobody else's."""

from typing import Any

import pytest

from learnloop_dataplane.postgres.database import Database

from ..conftest import Api, trajectory


async def _play(api: Api, identity: str, value: float, revision: str = "aaaa", agent: str = "walker") -> None:
    body = trajectory(identity, agent, value, model_deployment="walk", policy_revision=revision)
    body["outcome"]["values"] = {"turns": 4.0}
    await api.call("POST", "/api/v1/trajectories", 202, json=body)


async def _sql(db: Database, *statements: str) -> None:
    async with db.tenant("team-a") as connection:
        for statement in statements:
            await connection.execute(statement)


async def _weeks(api: Api, agent: str = "walker", **kwargs: Any) -> list[dict[str, Any]]:
    return list((await api.call("GET", f"/api/v1/agents/{agent}/progress", **kwargs))["weeks"])


async def test_success_time_turns_satisfaction_and_deployments_are_counted_by_week(api: Api) -> None:
    assert await _weeks(api) == []
    for index in range(12):
        await _play(api, f"old-{index}", 10.0 if index % 2 else 1.0)
        await _play(api, f"good-{index}", 20.0, "bbbb")
        await _play(api, f"bad-{index}", 1.0, "cccc")
    await _play(api, "other", 10.0, agent="runner")
    await api.call("POST", "/api/v1/feedback", json={"trajectory_id": "old-1", "user_id": "ann", "stars": 5})
    await _sql(api.db, "UPDATE trajectories SET received_at = now() - interval '7 days' WHERE agent_id = 'walker'")
    event = {
        "model_deployment": "walk",
        "revision": "aaaa",
        "uri": "uniform://discrete/2?observations=4",
        "deployed_at": "2026-01-31T12:00:00Z",
    }
    await api.call("PUT", "/api/v1/models/walk/deployed", json=event)
    [week] = await _weeks(api)
    assert (week["episodes"], week["rated"], week["satisfaction"]) == (36, 1, 1.0)
    assert week["success_rate"] == pytest.approx((6 + 12) / 36)
    assert (week["turns"], week["completion_seconds"]) == (4.0, 1.0)
    assert (week["deployments"], week["rollbacks"], week["false_rollbacks"]) == (3, 2, 1)
    assert week["deployment_success_rate"] == pytest.approx(1 / 3)
    await _play(api, "new-1", 10.0)
    old, new = await _weeks(api)
    assert (old["episodes"], new["episodes"], new["success_rate"]) == (36, 1, 1.0)
    assert old["week"] < new["week"]
    assert len(await _weeks(api, params={"weeks": 1})) == 1
    assert await _weeks(api, namespace="team-b") == []
    await api.call("GET", "/api/v1/agents/walker/progress", 422, params={"weeks": 0})


async def test_trainings_that_handed_in_a_policy_and_what_they_gained(api: Api) -> None:
    manifest = '{"agent": "coach", "evaluation": {"mean": 120.0}, "baseline": {"mean": 100.0}}'
    insert = "INSERT INTO training_runs (namespace, job, manifest, heartbeat, beat_at) VALUES ('team-a', "
    await _sql(
        api.db,
        f"{insert} 'coach-1', '{manifest}', NULL, now())",
        f"{insert} 'coach-2', NULL, '{{\"phase\": \"failed\"}}', now())",
        f"{insert} 'coach-3', NULL, '{{\"phase\": \"training\"}}', now())",
        f"{insert} 'other-1', NULL, '{{\"phase\": \"failed\"}}', now())",
    )
    [week] = await _weeks(api, "coach")
    assert (week["episodes"], week["trainings"], week["training_success_rate"]) == (0, 2, 0.5)
    assert week["gain_per_training"] == pytest.approx(0.2)
