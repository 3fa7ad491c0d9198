"""Copies the messages that wait in the streams, and publishes them again.

A message is kept until its reader has stored it, and storing is idempotent. So the position of a stream is what lies
behind the oldest acknowledgement, and to publish that again restores it: nothing is lost, and nothing is stored twice.
"""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NoMessage
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from learnloop_dataplane.backup.folder import STREAMS as FILE
from learnloop_dataplane.backup.folder import BackupError
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.streams import STREAMS

BATCH = 256
IDLE_SECONDS = 60.0
FETCH_SECONDS = 2.0
MESSAGE_ID = "Nats-Msg-Id"
EXPECTATIONS = "Nats-Expected-"


async def copy(bus: Bus, folder: Path) -> dict[str, dict[str, int]]:
    """Writes what waits in every stream. Returns each one's position.

    Raises:
        BackupError: NATS stopped answering on the way.
    """
    positions = {}
    with (folder / FILE).open("w", encoding="utf-8") as file:
        for stream in STREAMS:
            try:
                kept, position = 0, await _position(bus.js, stream)
                async for message in _waiting(bus.js, stream, position["acknowledged"] + 1, position["last"]):
                    file.write(json.dumps(_line(stream, message)) + "\n")
                    kept += 1
            except (NatsError, TimeoutError, OSError) as error:
                raise BackupError(
                    f"stream {stream}: NATS does not answer ({type(error).__name__}); try again"
                ) from None
            positions[stream] = {**position, "kept": kept}
    return positions


async def put_back(bus: Bus, backup: Path) -> dict[str, int]:
    """Publishes the messages again, each under its own id. Returns how many of each stream.

    Raises:
        Unavailable, ApiError: NATS did not take one; to begin again is safe.
    """
    counts = dict.fromkeys(STREAMS, 0)
    with (backup / FILE).open(encoding="utf-8") as file:
        for line in file:
            item = json.loads(line)
            headers = {key: val for key, val in item["headers"].items() if not key.startswith(EXPECTATIONS)}
            identity = headers.pop(MESSAGE_ID, f"restored/{item['stream']}/{item['seq']}")
            await bus.publish(item["subject"], base64.b64decode(item["data"]), identity, headers)
            counts[item["stream"]] += 1
    return counts


async def _position(js: JetStreamContext, stream: str) -> dict[str, int]:
    state = (await js.stream_info(stream)).state
    readers = [reader for reader in await js.consumers_info(stream) if reader.config.durable_name]
    floors = [reader.ack_floor.stream_seq for reader in readers if reader.ack_floor is not None]
    return {"first": state.first_seq, "last": state.last_seq, "acknowledged": min(floors, default=0)}


async def _waiting(js: JetStreamContext, stream: str, start: int, last: int) -> AsyncIterator[Msg]:
    """Messages from `start` to `last`, by a reader that nobody else sees and that takes nothing away."""
    if last < start:
        return
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=max(start, 1),
        ack_policy=AckPolicy.NONE,
        inactive_threshold=IDLE_SECONDS,
        mem_storage=True,
    )
    reader: Any = await js.pull_subscribe(">", stream=stream, config=config)
    try:
        while (await reader.consumer_info()).num_pending:
            try:
                messages = await reader.fetch(BATCH, timeout=FETCH_SECONDS)
            except NoMessage:
                continue
            for message in messages:
                if message.metadata.sequence.stream > last:
                    return
                yield message
    finally:
        await reader.unsubscribe()


def _line(stream: str, message: Msg) -> dict[str, Any]:
    return {
        "stream": stream,
        "seq": message.metadata.sequence.stream,
        "subject": message.subject,
        "headers": dict(message.headers or {}),
        "data": base64.b64encode(message.data).decode(),
    }
