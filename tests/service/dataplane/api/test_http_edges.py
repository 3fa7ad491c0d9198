"""The edges of the HTTP service: refusals, probes, retention, and queries that stay cheap."""

import pytest

from learnloop_dataplane.agents.agent_registry import RECENT
from learnloop_dataplane.audit.chain import digest_of

from ..conftest import Api, eventually, superuser, trajectory


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"steps": []}, "steps"),
        ({"started_at": "2026-01-31T12:00:00"}, "started_at"),
        ({"agent": "Not A Name"}, "agent"),
        ({"surprise": 1}, "surprise"),
        ({"outcome": {"status": "completed", "episode_return": "much"}}, "outcome.episode_return"),
    ],
)
async def test_a_bad_trajectory_is_refused_with_the_field(api: Api, change: dict, field: str) -> None:
    refused = await api.call("POST", "/api/v1/trajectories", 422, json=trajectory("bad", **change))
    assert refused["error"]["field"] == field
    assert refused["error"]["message"]


async def test_other_refusals_have_the_same_shape(api: Api) -> None:
    for method, path, status in (("GET", "/nowhere", 404), ("POST", "/healthz", 405)):
        assert set((await api.call(method, path, status))["error"]) == {"field", "value", "message"}
    for body in (b"{", b"NaN", b"[" * 5000, b'"\\ud800"', b"\xff"):
        await api.call("POST", "/api/v1/trajectories", 422, content=body)
        headers = {"content-type": "application/json"}
        answer = await api.client.put("/api/v1/agents/a", content=body, headers=headers)
        assert answer.status_code in (400, 422)
        assert set(answer.json()["error"]) == {"field", "value", "message"}


async def test_probes_and_the_openapi_document_need_no_caller(api: Api) -> None:
    await api.call("GET", "/healthz")
    await api.call("GET", "/readyz")
    document = await api.call("GET", "/openapi.json")
    assert "Trajectory" in document["components"]["schemas"]
    assert "/api/v1/memory/retrieve" in document["paths"]
    assert not [path for path in document["paths"] if "namespace" in path]


async def test_old_experience_is_forgotten_and_young_is_not(api: Api, dsn: str) -> None:
    for identity in ("old", "young"):
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(identity, "elder"))
    async with superuser(dsn) as connection:
        aged = "UPDATE trajectories SET received_at = received_at - interval '31 days' WHERE trajectory_id = 'old'"
        await connection.execute(aged)

        async def forgotten() -> bool:
            await api.privacy.retention.run()  # it passes by an episode that is being written to, until the next time
            rows = await connection.fetch("SELECT trajectory_id FROM training_transitions WHERE namespace = 'team-a'")
            left = {row["trajectory_id"] for row in rows}
            assert "young" in left
            return "old" not in left

        assert await eventually(forgotten)


async def test_what_is_trimmed_is_on_record(api: Api, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_dataplane.erasure.retention.MAX_EPISODE_MEMORIES", 2)
    await api.call("PUT", "/api/v1/agents/writer", json={}, namespace="trimmed")
    async with superuser(dsn) as connection:
        rows = await connection.fetch(
            "INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, source, created_at)"
            " SELECT 'trimmed', gen_random_uuid(), 'writer', 'episodic', '{}', '', 'episode',"
            " now() - i * interval '1 s'"
            " FROM generate_series(1, 5) i RETURNING id"
        )
    ids = [row["id"] for row in rows]  # the newest first
    await api.privacy.retention.run()

    async def latest():
        records = (await api.call("GET", "/api/v1/audit/records", namespace="trimmed"))["records"]
        return [record["detail"] for record in records if record["action"] == "retention.trimmed"]

    [what] = await eventually(latest)
    assert (what["count"], what["ids_sha256"]) == (2, digest_of(sorted(ids[3:])))


async def test_the_stats_never_scan_the_table(api: Api, dsn: str) -> None:
    async with superuser(dsn) as connection:
        await connection.execute(
            "INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision,"
            " started_at, ended_at, steps, status, episode_return, outcome_values, retrieval_ids, labels, remembered)"
            " SELECT 'bulk', 'b' || i, 'agent-' || i % 50, '', 'e', 'r', now(), now(), 1, 'completed', i,"
            " '{}', '[]', '{}', true FROM generate_series(1, 5000) i"
        )
        await connection.execute("ANALYZE trajectories")
    async with api.db.tenant("bulk") as connection:
        query = RECENT.replace("$1", "'bulk'").replace("$2", "'agent-7'").replace("$3", "'-infinity'")
        rows = await connection.fetch(f"EXPLAIN {query}")
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in plan, plan
    assert "ix_trajectories_agent" in plan, plan


async def test_without_postgresql_the_answer_is_503_and_the_process_lives(api: Api) -> None:
    pool, api.db._pool = api.db._pool, None
    try:
        answer = await api.client.post("/api/v1/trajectories", json=trajectory("x"))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        await api.call("GET", "/readyz", 503)
        await api.call("GET", "/healthz")
    finally:
        api.db._pool = pool

    async def ready() -> bool:
        return (await api.client.get("/readyz")).status_code == 200

    await eventually(ready)
