"""From RL_TRAJECTORIES into PostgreSQL: acknowledged only after the commit; what can never be stored is explained."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import asyncpg
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.concurrency.large_work import body_bytes, in_thread_if_large
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.experience.dead_letters import DeadLetters
from learnloop_dataplane.experience.trajectory_intake import safe_version
from learnloop_dataplane.experience.trajectory_store import Row, StoredTrajectories, prepare, store
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.delivery_heartbeat import keep, kept
from learnloop_dataplane.nats.message_errors import invalid
from learnloop_dataplane.nats.subjects import RefusedMessage, split_subject
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.pseudonyms import Users
from learnloop_dataplane.strict_json import StrictReader

STREAM_DURABLE = "learnloop-store"
_READER = StrictReader(Trajectory)
# What is a message's own fault. Whatever else PostgreSQL says (no right, no table, no more room) is nobody's episode's:
# the message is delivered again.
REFUSED_VALUES = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)


class TrajectoryConsumer:
    """Handles batches of one JetStream consumer.

    Args:
        stored: called with a namespace after new trajectories of it were committed.
        ack_wait: seconds after which NATS delivers again what it hears nothing of.
    """

    def __init__(
        self,
        db: Database,
        bus: Bus,
        users: Users,
        metrics: Metrics,
        dead_letters: DeadLetters,
        stored: Callable[[str], None],
        ack_wait: float,
        cipher: StepCipher = PLAIN,
    ) -> None:
        self._cipher = cipher
        self._patience = ack_wait / 4
        self._db = db
        self._bus = bus
        self._users = users
        self._metrics = metrics
        self._dead_letters = dead_letters
        self._stored = stored

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Stores a batch, one transaction for each namespace in it. Returns when every message is settled."""
        groups: dict[str, list[tuple[Msg, Trajectory]]] = defaultdict(list)
        refused: list[tuple[Msg, RefusedMessage]] = []
        for message in messages:
            try:
                self._dead_letters.check(message)
                body_bytes.set(len(message.data))
                namespace, trajectory = await in_thread_if_large("", read, message.subject, message.data)
            except RefusedMessage as refusal:
                refused.append((message, refusal))
            else:
                groups[namespace].append((message, trajectory))
        # Together: one slow acknowledgement must not let the others' time run out.
        await asyncio.gather(*(self._dead_letters.put(message, refusal) for message, refusal in refused))
        await self._store_each(groups.items())

    async def _store_group(self, namespace: str, group: list[tuple[Msg, Trajectory]]) -> None:
        try:
            new, unwanted = await self._persist(namespace, group)
        except asyncpg.PostgresError as error:
            if len(group) > 1:
                await self._store_each((namespace, [item]) for item in group)
            elif isinstance(error, REFUSED_VALUES):
                reason = f"PostgreSQL refuses it: {error}"
                await self._dead_letters.put(group[0][0], RefusedMessage(namespace, "storage", reason))
            else:
                raise
            return
        for item in {item.trajectory_id: item for _, item in group if item.trajectory_id in new}.values():
            self._metrics.agents.trajectory(namespace, item.agent, safe_version(item.policy_revision))
        for _ in group:
            self._metrics.collected(namespace)
        await asyncio.gather(*(self._erase(namespace, message) for message in unwanted))
        for message, _ in group:
            with suppress(NatsError):
                await message.ack()
        if new:
            self._stored(namespace)

    async def _store_each(self, groups: Iterable[tuple[str, list[tuple[Msg, Trajectory]]]]) -> None:
        """One after the other: what is wrong with one of them must not use up the deliveries of the others.

        Raises:
            asyncpg.PostgresError: of the last that could not be stored for no fault of its values.
        """
        failed: asyncpg.PostgresError | None = None
        for namespace, group in groups:
            try:
                await self._store_group(namespace, group)
            except asyncpg.PostgresError as error:
                failed = error
        if failed:
            raise failed

    async def _persist(self, namespace: str, group: list[tuple[Msg, Trajectory]]) -> tuple[set[str], list[Msg]]:
        """The ids that were new, and the messages of what was erased or of users who opted out.

        Waits for the database as long as it takes, telling NATS meanwhile that the messages are in hand.
        """
        delay, messages = 0.1, [message for message, _ in group]
        while True:
            try:
                async with kept(messages, self._patience):
                    shielded = await self._users.shield(namespace, dict(enumerate(item for _, item in group)))
                    body_bytes.set(sum(len(message.data) for message in messages))
                    rows = await in_thread_if_large(namespace, _prepared, [*shielded.values()])
                    stored = (
                        await store(self._db, namespace, rows, self._cipher)
                        if rows
                        else StoredTrajectories(set(), set())
                    )
                    return stored.new, [
                        messages[index]
                        for index, item in shielded.items()
                        if item is None or item.trajectory_id in stored.refused
                    ]
            except Unavailable:
                await keep(messages)
                await asyncio.sleep(delay)
                delay = min(delay * 2, self._patience)

    async def _erase(self, namespace: str, message: Msg) -> None:
        """Takes a message out of the stream too, where it would lie for a month."""
        self._metrics.opted_out(namespace)
        with suppress(NatsError, Unavailable):
            await self._bus.js.delete_msg(message.metadata.stream, message.metadata.sequence.stream)


def _prepared(trajectories: Iterable[Trajectory | None]) -> list[Row]:
    return [prepare(item) for item in trajectories if item is not None]


def read(subject: str, data: bytes) -> tuple[str, Trajectory]:
    """Namespace and body of one message.

    Raises:
        RefusedMessage: with the reason; such a message can never be stored.
    """
    namespace, agent = split_subject(subject, names.SUBJECT_TRAJECTORY)
    try:
        trajectory: Trajectory = _READER.read(data)
    except ValidationError as error:
        raise invalid(namespace, names.SUBJECT_TRAJECTORY, error, data) from None
    if trajectory.agent != agent:
        told = f"agent: the body says {trajectory.agent!r}, the subject says {agent!r}"
        raise RefusedMessage(
            namespace, "agent", f"{told}; publish it on {names.SUBJECT_TRAJECTORY}.<namespace>.<agent>"
        )
    return namespace, trajectory
