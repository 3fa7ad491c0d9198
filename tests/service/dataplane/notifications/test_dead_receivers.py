"""A receiver that takes connections and never answers delays nobody else: real sockets, a real database."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from os import getpid
from pathlib import Path
from typing import Any

from learnloop_dataplane.notifications.outbox import BATCH
from testing.servers.recording_server import DataPlane as Recorder

from ..conftest import eventually, running, settings

SOON = 8.0
"""Seconds, on a machine that does much else; one try of a silent receiver lasts longer."""


@asynccontextmanager
async def silence() -> AsyncIterator[tuple[int, list[float]]]:
    """The port of a server that never says a word, and when it was called."""
    called: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(time.monotonic())
        with suppress(asyncio.CancelledError, ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], called
    server.close()


async def tell(api: Any, namespace: str, identity: str, to: str) -> None:
    async with api.db.tenant(namespace) as connection:
        payload = json.dumps({"model_deployment": "walker", "revision": "3f9a", "verdict": "better"}).encode()
        made = api.plane.shared.notifications
        await made.tell(connection, namespace, "model.deployed", identity, payload, to=[to])


def given(directory: Path, recorder: Recorder, port: int) -> dict[str, Any]:
    (directory / "secrets").mkdir()
    (directory / "secrets" / "key").write_text("a-key")
    inside = {"privateAddresses": True, "secret": "key"}
    mail = {"host": "127.0.0.1", "port": port, "sender": "a@example.org", "to": ["b@example.org"]}
    # By name, so that each message asks for its address.
    alive = recorder.url.replace("127.0.0.1", "localhost")
    receivers = [
        {"name": "web", "type": "webhook", "url": f"http://127.0.0.1:{port}/", **inside},
        {"name": "mail", "type": "email", "email": mail, "privateAddresses": True},
        {"name": "ops", "type": "webhook", "url": f"{alive}/ops", **inside},
    ]
    found = {"notifications": json.dumps({"receivers": receivers})}
    return {**found, "notifications_secrets": str(directory / "secrets")}


async def after_a_silent_one(database: str, tmp_path: Path, silent: str) -> float:
    """Seconds until a receiver was told in its namespace and in another one, while many messages wait for a silent
    one in both."""
    recorder = Recorder()
    async with (
        silence() as (port, called),
        running(**settings(database, tmp_path, **given(tmp_path, recorder, port))) as api,
    ):
        for number in range(3 * BATCH):
            for namespace in ("team-a", "team-b"):
                await tell(api, namespace, f"{namespace}/{number}", silent)

        async def tried() -> bool:
            return bool(called)

        await eventually(tried)
        begun = time.monotonic()
        for namespace in ("team-a", "team-b"):
            await tell(api, namespace, f"{namespace}/good", "ops")

        async def told() -> bool:
            return len(recorder.bodies("/ops")) == 2

        await eventually(told, 60)
        return time.monotonic() - begun


async def test_a_silent_webhook_delays_no_other_receiver(migrated: Callable[[str], str], tmp_path: Path) -> None:
    assert await after_a_silent_one(migrated(f"silent_web_{getpid()}"), tmp_path, "web") < SOON


async def test_a_silent_mail_server_delays_no_other_receiver(migrated: Callable[[str], str], tmp_path: Path) -> None:
    assert await after_a_silent_one(migrated(f"silent_mail_{getpid()}"), tmp_path, "mail") < SOON
