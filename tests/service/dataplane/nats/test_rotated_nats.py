"""Password and issuer of a NATS cluster are rotated under load: every permitted client is let in."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import nats
import nats.errors
import pytest

from learnloop_api import names
from learnloop_dataplane.config import login_of
from testing.failover.nats_cluster import NatsCluster, nats_cluster
from testing.servers.tenants_nats import SEED, accounts
from testing.servers.token_issuer import Cluster

from ..conftest import Api, eventually, running, settings, superuser, trajectory

OLD, NEW = "oldLetters", "newLetters"
NEW_SEED = base64.b64encode(bytes(range(32, 64))).decode()


class Installation:
    """Three servers, the data plane's pods next to them, and a tenant that never stops publishing."""

    def __init__(self, servers: NatsCluster, folder: Path, values: dict, token: Callable[[], str]) -> None:
        self.servers, self._folder, self._values, self._token = servers, folder, values, token
        self.name, self.sent = folder.name, list[str]()
        self._pod, self._plane = AsyncExitStack(), list[Api]()

    async def replace_plane(self, **secrets: str) -> None:
        """A new pod of the data plane begins next to the old one, which ends when the new one is ready."""
        old, self._pod = self._pod, AsyncExitStack()
        values = {**self._values, **secrets, "nats_url": self.servers.url, "nats_user": "learnloop"}
        api = await self._pod.enter_async_context(running(**values))
        self._plane.append(api)
        await self.lets_in()
        await old.aclose()
        del self._plane[:-1]
        await self.lets_in()

    async def close(self) -> None:
        await self._pod.aclose()

    async def roll(self, **secrets: str) -> None:
        """Replaces the servers one by one; while some are new and some are old each of them lets the tenant in."""
        for number in range(len(self.servers.servers)):
            (self._folder / str(number)).mkdir(exist_ok=True)
            self.servers.replace(number, accounts(self._folder / str(number), **secrets))
            await self.lets_in()

    async def lets_in(self) -> None:
        """Each server, once the data plane's pods are connected again."""
        for api in self._plane:

            async def ready(api: Api = api) -> bool:
                return (await api.client.get("/readyz")).status_code == 200

            await eventually(ready, 60)
        for number, server in enumerate(self.servers.servers):
            await self._publish(f"{self.name}-probe-{number}-{len(self.sent)}", server.url)

    async def load(self, over: asyncio.Event) -> None:
        """As an agent does: again under the same id until it is acknowledged, by a connection of its own each time.
        The last one, too: what is not acknowledged may be stored."""
        for number in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
            while (identity := f"{self.name}-{number}") not in self.sent:
                with suppress(nats.errors.Error, OSError, TimeoutError):
                    await self._publish(identity, self.servers.url)
                await asyncio.sleep(0.02)

    async def _publish(self, identity: str, url: str) -> None:
        client = await nats.connect(
            url.split(","),
            token=self._token(),
            inbox_prefix=names.nats_inbox("red", "default"),
            allow_reconnect=False,
            connect_timeout=10,
        )
        subject, headers = f"{names.SUBJECT_TRAJECTORY}.red.walker", {"Nats-Msg-Id": f"red/{identity}"}
        try:
            while True:
                with suppress(nats.errors.NoRespondersError):  # servers tell one another who hears the tenants
                    answer = await client.request(
                        subject, json.dumps(trajectory(identity)).encode(), timeout=10, headers=headers
                    )
                    refused = json.loads(answer.data).get("error")
                    if not refused:
                        break
                    assert refused["code"] == 503, "the stream has no leader yet, and it says: send it again"
                await asyncio.sleep(0.1)
        finally:
            await client.close()
        self.sent.append(identity)


@pytest.fixture
async def installation(dsn: str, tmp_path: Path, cluster: Cluster) -> AsyncIterator[Installation]:
    with cluster.served() as url, nats_cluster(tmp_path / "nats", more=accounts(tmp_path, passwords=OLD)) as servers:
        own = tmp_path / "token"
        own.write_text(cluster.token())
        values = settings(dsn, tmp_path, auth="jwks", jwks_url=url, jwks_token_file=str(own), stream_replicas=3)
        made = Installation(servers, tmp_path, values, lambda: cluster.token("red", "default"))
        yield made
        await made.close()


@asynccontextmanager
async def under_load(installation: Installation, dsn: str) -> AsyncIterator[None]:
    """Afterwards all that was sent is stored, and nothing twice."""
    over = asyncio.Event()

    async with superuser(dsn) as connection:
        task = asyncio.create_task(installation.load(over))
        try:
            yield
            await eventually(lambda: len(set(installation.sent)) > 50)
        finally:
            over.set()
            await task

        async def all_there() -> bool:
            rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = 'red'")
            stored = [row["trajectory_id"] for row in rows if row["trajectory_id"].startswith(installation.name)]
            assert len(stored) == len(set(stored)), "twice"
            return set(stored) == set(installation.sent)

        await eventually(all_there)


async def lets_the_data_plane_in(url: str, user: str, password: str) -> bool:
    try:
        client = await nats.connect(url, user=user, password=password, allow_reconnect=False, connect_timeout=10)
    except nats.errors.Error as error:
        return "authorization violation" not in str(error).lower()
    await client.close()
    return True


@pytest.mark.timeout(600)
async def test_a_password_follows_another_and_nobody_is_refused(installation: Installation, dsn: str) -> None:
    url = installation.servers.servers[0].url
    await installation.replace_plane(nats_password=OLD, nats_issuer_key=SEED)
    async with under_load(installation, dsn):
        await installation.roll(passwords=f"{NEW}\n{OLD}")
        await installation.replace_plane(nats_password=f"{NEW}\n{OLD}", nats_issuer_key=SEED)
        assert await lets_the_data_plane_in(url, "learnloop", OLD), "pods that are not replaced yet"
        await installation.roll(passwords=NEW)
        await installation.replace_plane(nats_password=NEW, nats_issuer_key=SEED)
    assert await lets_the_data_plane_in(url, "learnloop", NEW)
    assert not await lets_the_data_plane_in(url, "learnloop", OLD)
    assert not await lets_the_data_plane_in(url, login_of("learnloop", OLD), OLD)


@pytest.mark.timeout(600)
async def test_an_issuer_follows_another_while_servers_believe_the_one_or_the_other(installation, dsn):
    await installation.replace_plane(nats_password=OLD, nats_issuer_key=SEED)
    async with under_load(installation, dsn):
        await installation.replace_plane(nats_password=OLD, nats_issuer_key=f"{SEED}\n{NEW_SEED}")
        await installation.roll(passwords=OLD, keys=f"{NEW_SEED}\n{SEED}")
        await installation.replace_plane(nats_password=OLD, nats_issuer_key=NEW_SEED)
