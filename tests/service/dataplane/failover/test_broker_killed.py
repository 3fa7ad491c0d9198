"""A NATS cluster of three loses a server under load: nothing is lost, nothing is stored twice."""

import asyncio
import json
from pathlib import Path

import httpx
import nats
import pytest

from learnloop_api import names
from learnloop_dataplane.nats.connection import STREAMS, TRAJECTORIES
from testing.failover.nats_cluster import NatsCluster, nats_cluster

from ..conftest import Api, eventually, running, settings, superuser, trajectory

PUBLISHERS = 4
EACH = 60


async def leader(cluster: NatsCluster, api: Api) -> str:
    """Name of the server that leads the stream of episodes."""
    info = await api.bus.js.stream_info(TRAJECTORIES)
    return info.cluster.leader if info.cluster and info.cluster.leader else ""


async def publish(url: str, name: str, sent: list[str], progress: asyncio.Event) -> None:
    """As an agent does: again under the same id until it is acknowledged."""
    client = await nats.connect(url.split(","), max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    js = client.jetstream(timeout=1)
    for index in range(EACH):
        identity = f"{name}-{index}"
        body = json.dumps(trajectory(identity)).encode()
        while True:
            try:
                await js.publish(
                    f"{names.SUBJECT_TRAJECTORY}.team-a.walker", body, headers={"Nats-Msg-Id": f"team-a/{identity}"}
                )
                break
            except Exception:  # no answer, no leader, no connection: whatever it is, the same again
                await asyncio.sleep(0.1)
        sent.append(identity)
        if len(sent) >= PUBLISHERS * EACH // 4:
            progress.set()
        await asyncio.sleep(0.01)
    await client.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", ["leader", "ours"])
async def test_a_broker_that_is_killed_under_load_costs_nothing(dsn: str, tmp_path: Path, who: str) -> None:
    """Once the server that leads the stream, once the one that the data plane is connected to."""
    with nats_cluster(tmp_path / "cluster") as cluster:
        values = settings(dsn, tmp_path, nats_url=cluster.url, stream_replicas=3)
        async with running(**values) as api:
            for stream in STREAMS:
                info = await api.bus.js.stream_info(stream)
                assert info.config.num_replicas == 3
            await api.call("PUT", "/api/v1/agents/walker", json={})
            async with superuser(dsn) as connection:
                before = await connection.fetchval("SELECT count(*) FROM trajectories")
                sent: list[str] = []
                progress = asyncio.Event()
                publishers = [
                    asyncio.create_task(publish(cluster.url, f"{who}-{number}", sent, progress))
                    for number in range(PUBLISHERS)
                ]
                await asyncio.wait_for(progress.wait(), 60)
                client = api.bus._client
                connected = f"nats-{[server.url for server in cluster.servers].index(client.connected_url.geturl())}"
                victim = cluster.by_name(await leader(cluster, api) if who == "leader" else connected)
                victim.kill()
                await asyncio.wait_for(asyncio.gather(*publishers), 120)
                assert len(sent) == len(set(sent)) == PUBLISHERS * EACH

                async def all_there() -> bool:
                    stored = await connection.fetchval("SELECT count(*) FROM trajectories") - before
                    assert stored <= len(sent), "twice"
                    return bool(stored == len(sent))

                await eventually(all_there)
            victim.start()

            async def whole_again() -> bool:
                try:
                    info = await api.bus.js.stream_info(TRAJECTORIES)
                except (OSError, TimeoutError, nats.errors.Error):
                    return False
                followers = (info.cluster.replicas if info.cluster else None) or []
                return len(followers) == 2 and all(peer.current for peer in followers)

            await eventually(whole_again)

            async def ready() -> bool:
                return (await api.client.get("/readyz")).status_code == 200

            await eventually(ready)


async def test_over_http_agents_notice_nothing_but_a_pause(dsn: str, tmp_path: Path) -> None:
    with nats_cluster(tmp_path / "cluster") as cluster:
        values = settings(dsn, tmp_path, nats_url=cluster.url, stream_replicas=3)
        async with running(**values) as api:
            headers = {"x-learnloop-namespace": "team-b"}
            await api.call("PUT", "/api/v1/agents/walker", namespace="team-b", json={})
            killed, taken = False, 0
            while taken < 40:
                body = trajectory(f"http-{taken}")
                answer: httpx.Response = await api.client.post("/api/v1/trajectories", headers=headers, json=body)
                assert answer.status_code in (200, 201, 202, 503), answer.text
                if answer.status_code != 503:
                    taken += 1
                if taken == 20 and not killed:
                    cluster.by_name(await leader(cluster, api)).kill()
                    killed = True
            async with superuser(dsn) as connection:

                async def all_there() -> bool:
                    query = "SELECT count(*) FROM trajectories WHERE namespace = 'team-b'"
                    return bool(await connection.fetchval(query) == 40)

                await eventually(all_there)
