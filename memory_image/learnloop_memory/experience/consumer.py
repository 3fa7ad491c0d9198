"""From RL_TRAJECTORIES into PostgreSQL: acknowledged only after the commit; what can never be stored is explained."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import asyncpg
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.trajectory import Trajectory
from learnloop_memory.errors import Unavailable
from learnloop_memory.experience import dead_letters
from learnloop_memory.experience.store import Row, prepare, store
from learnloop_memory.experience.subjects import Refused, split_subject
from learnloop_memory.metrics import Metrics
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
STREAM_DURABLE = "learnloop-store"


class TrajectoryConsumer:
    """Handles batches of one JetStream consumer.

    Args:
        stored: called with a namespace after new trajectories of it were committed.
        ack_wait: seconds after which NATS delivers again what it hears nothing of.
    """

    def __init__(self, db: Database, metrics: Metrics, stored: Callable[[str], None], ack_wait: float) -> None:
        self._patience = ack_wait / 4
        self._db = db
        self._metrics = metrics
        self._stored = stored

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Stores a batch, one transaction for each namespace in it. Returns when every message is settled."""
        groups: dict[str, list[tuple[Msg, Row]]] = defaultdict(list)
        for message in messages:
            try:
                namespace, row = read(message.subject, message.data)
            except Refused as refusal:
                await self._refuse(message, refusal)
            else:
                groups[namespace].append((message, row))
        for namespace, group in groups.items():
            await self._store_group(namespace, group)

    async def _store_group(self, namespace: str, group: list[tuple[Msg, Row]]) -> None:
        try:
            new = await self._persist(namespace, group)
        except asyncpg.PostgresError as error:
            if len(group) == 1:
                reason = f"PostgreSQL refuses it: {error}"
                await self._refuse(group[0][0], Refused(namespace, reason))
            else:
                for item in group:
                    await self._store_group(namespace, [item])
            return
        for row in [row for _, row in group if row.trajectory_id in new]:
            self._metrics.trajectory(namespace, row.agent)
        for message, _ in group:
            with suppress(NatsError):
                await message.ack()
        if new:
            self._stored(namespace)

    async def _persist(self, namespace: str, group: list[tuple[Msg, Row]]) -> set[str]:
        """Waits for the database as long as it takes, telling NATS meanwhile that the messages are in hand."""
        delay, messages = 0.1, [message for message, _ in group]
        while True:
            try:
                async with kept(messages, self._patience):
                    return await store(self._db, namespace, [row for _, row in group])
            except Unavailable:
                await keep(messages)
                await asyncio.sleep(delay)
                delay = min(delay * 2, self._patience)

    async def _refuse(self, message: Msg, refusal: Refused) -> None:
        while True:
            try:
                await dead_letters.put(self._db, refusal, message)
                break
            except Unavailable:
                await keep([message])
                await asyncio.sleep(min(0.5, self._patience))
        self._metrics.dead_letter(refusal.namespace)
        log.info("refused a message on %s: %s", message.subject, refusal.reason)
        with suppress(NatsError):
            await message.term()


async def keep(messages: Sequence[Msg]) -> None:
    """Tells NATS that these are being worked on; an absent NATS is no reason to stop waiting for PostgreSQL."""
    for message in messages:
        with suppress(NatsError, OSError):
            await message.in_progress()


@asynccontextmanager
async def kept(messages: Sequence[Msg], interval: float) -> AsyncIterator[None]:
    """Keeps the messages in progress while something slow runs: a busy database must not look like a dead reader."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(interval)
            await keep(messages)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


def read(subject: str, data: bytes) -> tuple[str, Row]:
    """Namespace and row of one message.

    Raises:
        Refused: with the reason; such a message can never be stored.
    """
    namespace, agent = split_subject(subject, names.SUBJECT_TRAJECTORY)
    try:
        trajectory = Trajectory.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Refused(namespace, f"{where}: {first['msg']}") from None
    if trajectory.agent != agent:
        raise Refused(namespace, f"agent: the body says {trajectory.agent!r}, the subject says {agent!r}")
    return namespace, prepare(trajectory)
