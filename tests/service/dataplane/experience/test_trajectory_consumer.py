"""JetStream: nothing lost, nothing doubled, nothing invalid stored, whatever is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import nats as nats_client
import pytest

from ..conftest import POLICY, START_SECONDS, Api, Nats, eventually, running, settings, superuser, trajectory

SUBJECT = "agent.rl.trajectory.v1"


@pytest.fixture
async def api(dsn: str, tmp_path: Path, nats: Nats) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as started:
        yield started


async def _publish(url: str, subject: str, *bodies) -> None:
    client = await nats_client.connect(url, connect_timeout=20)
    js = client.jetstream(timeout=START_SECONDS)
    for body in bodies:
        await js.publish(subject, body if isinstance(body, bytes) else json.dumps(body).encode())
    await client.close()


async def test_http_publishes_once_and_says_when_it_was_a_duplicate(api: Api) -> None:
    answers = [await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("h1", "http")) for _ in range(2)]
    assert [answer["duplicate"] for answer in answers] == [False, True]
    other = await api.call("POST", "/api/v1/trajectories", 202, namespace="team-b", json=trajectory("h1", "http"))
    assert other["duplicate"] is False, "another namespace's id is another id"
    await api.call("PUT", "/api/v1/agents/http", json={})

    async def stored() -> bool:
        return (await api.call("GET", "/api/v1/agents/http/stats"))["trajectories"] == 1

    await eventually(stored)
    await api.call("GET", "/readyz")


async def test_rewards_are_announced(api: Api, nats: Nats) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/loud/revisions/r1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/singer", json={"reward_policy": "loud", "reward_policy_revision": "r1"})
    client = await nats_client.connect(nats.url, connect_timeout=20)
    subscription = await client.subscribe("agent.rl.reward.v1.team-a.singer")
    await client.flush()
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("s1", "singer"))
    message = await subscription.next_msg(timeout=START_SECONDS)
    assert json.loads(message.data)["trajectory_id"] == "s1"
    await client.close()


async def test_heartbeats_are_relayed(api: Api, nats: Nats) -> None:
    client = await nats_client.connect(nats.url, connect_timeout=20)
    subscription = await client.subscribe("agent.rl.training.status.v1.team-a.job-1")
    await client.flush()
    beat = {
        "job": "job-1", "attempt": 0, "phase": "training", "step": 1, "total_steps": 9, "world_size": 1,
        "steps_per_second": 5, "at": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    await api.call("PUT", "/api/v1/training/runs/job-1/heartbeat", json=beat)
    assert json.loads((await subscription.next_msg(timeout=START_SECONDS)).data)["step"] == 1
    await client.close()


async def test_a_training_request_reaches_the_stats(api: Api, nats: Nats) -> None:
    await api.call("PUT", "/api/v1/agents/eager", json={})
    subject = "agent.rl.training.request.v1.team-a.eager"
    await _publish(
        nats.url, subject, {"request_id": "first"}, {"nothing": 1}, {"request_id": "second", "compute": {"workers": 1}}
    )

    async def requested() -> bool:
        return (await api.call("GET", "/api/v1/agents/eager/stats"))["training_request"] == "second"

    await eventually(requested)
    wish = (await api.call("GET", "/api/v1/agents/eager/stats"))["training_wish"]
    assert (wish["compute"]["workers"], wish["dataset"]) == (1, None)


async def test_a_training_request_that_is_sent_again_after_another_one_asks_for_nothing(api: Api, nats: Nats) -> None:
    async def newest(agent: str) -> str | None:
        return str((await api.call("GET", f"/api/v1/agents/{agent}/stats"))["training_request"])

    for agent in ("twice", "after"):
        await api.call("PUT", f"/api/v1/agents/{agent}", json={})
    subject = "agent.rl.training.request.v1.team-a"
    requests = [{"request_id": name} for name in ("first", "second", "first")]
    await _publish(nats.url, f"{subject}.twice", *requests)
    await _publish(nats.url, f"{subject}.after", {"request_id": "first"})  # each agent has ids of its own

    async def settled() -> bool:
        return await newest("after") == "first"

    await eventually(settled)
    assert await newest("twice") == "second"
    await _publish(nats.url, f"{subject}.twice", {"request_id": "third"})

    async def third() -> bool:
        return await newest("twice") == "third"

    await eventually(third)


async def test_secrets_do_not_reach_the_tables(api: Api, nats: Nats, dsn: str) -> None:
    body = trajectory("leaky", "leaky", task="write to anna@example.org")
    body["policy_revision"], body["outcome"]["values"] = "of anna@example.org", {"to anna@example.org": 1.0}
    body["steps"][0]["observation"] = {"page": "key sk-abcdefghijklmnop1234 and \u0000", "password": "hunter2"}
    await _publish(nats.url, f"{SUBJECT}.team-a.leaky", body)

    async def row():
        async with superuser(dsn) as connection:
            return await connection.fetchrow(
                "SELECT task, policy_revision, outcome_values::text, s.steps::text FROM trajectories t"
                " JOIN training_transitions s USING (namespace, trajectory_id) WHERE trajectory_id = 'leaky'"
            )

    stored = await eventually(row)
    assert stored["task"] == "write to <EMAIL>"
    assert (stored["policy_revision"], stored["outcome_values"]) == ("of <EMAIL>", '{"to <EMAIL>": 1.0}')
    assert "sk-abc" not in stored["steps"]
    assert "hunter2" not in stored["steps"]


async def test_nats_away_means_503_and_restarted_means_nothing_lost(migrated, tmp_path, tmp_path_factory, port):
    server = Nats(tmp_path_factory.mktemp("nats-restarted"), port).start()
    dsn = migrated(f"nats_restart_{os.getpid()}")
    async with running(**settings(dsn, tmp_path, nats_url=server.url)) as api:
        for index in range(20):
            await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"a{index}", "steady"))
        server.kill()

        async def refused() -> bool:
            answer = await api.client.post("/api/v1/trajectories", json=trajectory("b0", "steady"))
            return answer.status_code == 503 and "Retry-After" in answer.headers

        await eventually(refused)
        await api.call("GET", "/readyz", 503)
        await api.call("GET", "/healthz", 200)
        server.start()

        async def accepted() -> bool:
            answer = await api.client.post(
                "/api/v1/trajectories", json=trajectory("b0", "steady"), headers={"x-learnloop-namespace": "team-a"}
            )
            return answer.status_code == 202

        await eventually(accepted)
        await api.call("PUT", "/api/v1/agents/steady", json={})

        async def complete() -> bool:
            return (await api.call("GET", "/api/v1/agents/steady/stats"))["trajectories"] == 21

        await eventually(complete)
    server.kill()


class Process:
    """The real service in a process of its own."""

    def __init__(self, dsn: str, directory: Path, nats: Nats, port: int) -> None:
        self.port = port
        values = settings(dsn, directory, nats_url=nats.url, port=self.port, host="127.0.0.1", log_level="WARNING")
        environment = {f"LEARNLOOP_{key.upper()}": str(value) for key, value in values.items()}
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "learnloop_dataplane"], env=self._environment)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    async def get(self, path: str):
        headers = {"x-learnloop-namespace": "team-a"}
        try:
            # No certificates to load: it is asked often.
            async with httpx.AsyncClient(verify=False, timeout=120) as client:
                answer = await client.get(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        except httpx.TransportError:
            return None
        return answer.json() if answer.status_code == 200 else None


async def test_killed_in_the_middle_nothing_is_lost_and_nothing_doubled(migrated, tmp_path, nats, port, request):
    total = 400
    dsn = migrated(f"killed_{os.getpid()}")
    process = Process(dsn, tmp_path, nats, port)
    request.addfinalizer(process.kill)
    process.start()
    await eventually(lambda: process.get("/readyz"))

    async def publish(first: int, last: int) -> None:
        bodies = [trajectory(f"k{index}", "survivor", float(index % 7)) for index in range(first, last)]
        await _publish(nats.url, f"{SUBJECT}.team-a.survivor", *bodies)

    async with superuser(dsn) as connection:
        await connection.execute(
            "INSERT INTO reward_policy_revisions (namespace, name, revision, spec) VALUES ('team-a', 'p', 'r', $1);",
            json.dumps(POLICY),
        )
        await connection.execute(
            "INSERT INTO agents (namespace, name, registered_at, reward_policy, reward_policy_revision)"
            " VALUES ('team-a', 'survivor', now(), 'p', 'r')"
        )
        publishing = asyncio.create_task(publish(0, total // 2))

        await eventually(lambda: connection.fetchval("SELECT count(*) >= 20 FROM trajectories"))
        process.kill()
        await publishing
        await publish(total // 2, total)
        process.start()

        async def complete():
            stats = await process.get("/api/v1/agents/survivor/stats")
            return stats if stats and stats["rewarded"] >= total else None

        stats = await eventually(complete, 180)
        assert (stats["trajectories"], stats["rewarded"]) == (total, total)
        counts = await connection.fetchrow(
            "SELECT (SELECT count(*) FROM trajectories WHERE agent_id = 'survivor') AS stored,"
            " (SELECT count(*) FROM training_transitions WHERE trajectory_id LIKE 'k%') AS steps,"
            " (SELECT count(*) FROM reward_history) AS rewards, (SELECT sum(count) FROM reward_statistics) AS weighed"
        )
        assert tuple(counts) == (total, total, total, total)
