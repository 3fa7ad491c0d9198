"""A PostgreSQL primary is killed, or takes no more writes, under load: nothing is lost, nothing is stored twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from learnloop_dataplane.postgres.logins import migrate
from learnloop_dataplane.training.study_storage import open_storage
from testing.failover.postgres_standby import Pair, Server, primary_and_standby
from testing.servers.nats_server import Nats

from ..conftest import Api, eventually, running, settings, trajectory

LEAST = 40


@pytest.fixture
def pair() -> Iterator[Pair]:
    def migrated(primary: Server) -> None:
        primary.sql("CREATE DATABASE data")
        with ThreadPoolExecutor(1) as thread:  # this one's event loop belongs to the tests
            thread.submit(asyncio.run, migrate(primary.dsn("data"))).result()

    with primary_and_standby(migrated) as both:
        yield both


class Load:
    """Agents that send each episode again until it is taken."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.taken: list[str] = []
        self.over = False

    async def send(self, worker: int) -> None:
        number = 0
        while not self.over:
            identity = f"{worker}-{number}"
            headers = {"x-learnloop-namespace": "team-a"}
            body = trajectory(identity)
            answer = await self._api.client.post("/api/v1/trajectories", headers=headers, json=body)
            if answer.status_code == 503:
                await asyncio.sleep(0.1)
                continue
            assert answer.status_code in (200, 201, 202), answer.text
            self.taken.append(identity)
            number += 1

    async def more(self, count: int = LEAST) -> None:
        """Returns when so many more are taken."""
        goal = len(self.taken) + count

        await eventually(lambda: len(self.taken) >= goal)


async def all_are_there_once(server, load: Load) -> None:
    async def stored() -> bool:
        there = server.sql("SELECT trajectory_id FROM trajectories", "data").split()
        assert len(there) == len(set(there)), "twice"
        return set(load.taken) <= set(there)  # one whose answer was lost may be there as well

    await eventually(stored)


@pytest.fixture
async def loaded(
    pair: Pair, tmp_path: Path, request: pytest.FixtureRequest, nats: Nats
) -> AsyncIterator[tuple[Api, Load]]:
    """A data plane with a DSN of two hosts, under load."""
    more = {"nats_url": nats.url} if request.param == "by the stream" else {}
    async with running(**settings(pair.dsn("data"), tmp_path, **more)) as api:
        await api.call("PUT", "/api/v1/agents/walker", json={})
        load = Load(api)
        workers = [asyncio.create_task(load.send(worker)) for worker in range(4)]
        await load.more()
        yield api, load
        load.over = True
        for worker in workers:
            worker.cancel()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("loaded", ["by the stream"], indirect=True)
async def test_a_standby_that_is_promoted_takes_over_and_nobody_restarts(pair: Pair, loaded: tuple[Api, Load]) -> None:
    api, load = loaded
    pair.primary.kill()
    await asyncio.sleep(0.3)
    pair.standby.sql("ALTER SYSTEM SET synchronous_standby_names = ''")  # it has none of its own
    await asyncio.to_thread(pair.standby.promote)
    pair.standby.sql("SELECT pg_reload_conf()")
    await load.more()
    load.over = True
    await all_are_there_once(pair.standby, load)
    await api.call("GET", "/readyz")
    storage = await asyncio.to_thread(open_storage, pair.dsn("data"))
    assert storage.get_all_studies() == []
    storage.engine.dispose()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("loaded", ["straight"], indirect=True)
async def test_a_server_that_no_longer_takes_writes_is_left(pair: Pair, loaded: tuple[Api, Load]) -> None:
    """A primary that was made a standby beneath open connections: they work, and every write over them is refused."""
    _, load = loaded
    pair.standby.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
    pair.primary.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
    pair.primary.sql("SELECT pg_reload_conf()")
    load.over = True  # what is written between these two lines would be on one side only
    await asyncio.sleep(0.5)
    pair.primary.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    pair.primary.sql("SELECT pg_reload_conf()")
    await asyncio.to_thread(pair.standby.promote)
    load.over = False
    worker = asyncio.create_task(load.send(9))
    await load.more()
    load.over = True
    await worker
    await all_are_there_once(pair.standby, load)
