"""Consumers of NATS: episodes into PostgreSQL, and requests for training; acknowledged after the commit."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import asyncpg
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.training_request import TrainingRequest
from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.access.callers import Authenticator
from learnloop_dataplane.concurrency.limits import EpisodeRate
from learnloop_dataplane.concurrency.loop import Background
from learnloop_dataplane.concurrency.offload import body_bytes, in_thread_if_large
from learnloop_dataplane.config import Config
from learnloop_dataplane.config_values import seed_from
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.experience.trajectories import Row, StoredTrajectories, prepare, safe_version, store
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.auth_callout import AuthCallout, Issuer
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.consumer import MAX_DELIVER, Handler, consumer_config, invalid, keep, kept, pull_forever
from learnloop_dataplane.nats.relay import Relay, TenantConnection
from learnloop_dataplane.nats.streams import ROOM_SECONDS, TRAINING, TRAJECTORIES, Room
from learnloop_dataplane.nats.subjects import RefusedMessage, split_subject
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users
from learnloop_dataplane.privacy.redaction import redact_text
from learnloop_dataplane.strict_json import StrictReader

log = logging.getLogger(__name__)
STAYS = ("storage", "poison")
"""Codes of refused messages that stay in their stream: the fault is not their publisher's."""


class Refusals:
    """Settles the messages that can never be stored, of both consumers: each is counted, and logged with the reason."""

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        self._bus, self._metrics = bus, metrics

    def addressed(self, message: Msg, prefix: str) -> tuple[str, str]:
        """Namespace and name of the message's subject.

        Raises:
            RefusedMessage: the subject has none; or it is the last delivery, and each one before ended with its reader.
        """
        namespace, name = split_subject(message.subject, prefix)
        if message.metadata.num_delivered >= MAX_DELIVER:
            reason = f"delivered {message.metadata.num_delivered} times, and no reader lived to acknowledge it"
            raise RefusedMessage(namespace, "poison", reason)
        return namespace, name

    async def settle(self, message: Msg, refusal: RefusedMessage) -> None:
        """Takes the message out of its stream, where secrets and facts about people would lie for a month."""
        meta = message.metadata
        self._metrics.refused(refusal.namespace, refusal.code)
        if message.subject.startswith(names.SUBJECT_TRAJECTORY):
            self._metrics.not_collected(refusal.namespace, refusal.code)
        stays = refusal.code in STAYS
        place, reason = f"{meta.stream}/{meta.sequence.stream}", redact_text(refusal.reason)
        log.log(logging.WARNING if stays else logging.INFO, "refused %s (%s): %r", place, refusal.code, reason)
        if not stays:
            with suppress(NatsError, Unavailable):
                await self._bus.js.delete_msg(meta.stream, meta.sequence.stream)
        with suppress(NatsError):
            await message.term()


STREAM_DURABLE = "learnloop-store"
_READER = StrictReader(Trajectory)
# Errors that a message's values cause. After any other error (rights, tables, disk) the message is delivered again.
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
        refusals: Refusals,
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
        self._refusals = refusals
        self._stored = stored

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Stores a batch, one transaction for each namespace in it. Returns when every message is settled."""
        groups: dict[str, list[tuple[Msg, Trajectory]]] = defaultdict(list)
        refused: list[tuple[Msg, RefusedMessage]] = []
        for message in messages:
            try:
                self._refusals.addressed(message, names.SUBJECT_TRAJECTORY)
                body_bytes.set(len(message.data))
                namespace, trajectory = await in_thread_if_large("", read, message.subject, message.data)
            except RefusedMessage as refusal:
                refused.append((message, refusal))
            else:
                groups[namespace].append((message, trajectory))
        # Together: one slow acknowledgement must not let the others' time run out.
        await asyncio.gather(*(self._refusals.settle(message, refusal) for message, refusal in refused))
        await self._store_each(groups.items())

    async def _store_group(self, namespace: str, group: list[tuple[Msg, Trajectory]]) -> None:
        try:
            new, unwanted = await self._persist(namespace, group)
        except asyncpg.PostgresError as error:
            if len(group) > 1:
                await self._store_each((namespace, [item]) for item in group)
            elif isinstance(error, REFUSED_VALUES):
                reason = f"PostgreSQL refuses it: {error.args[0]}"  # its detail has the whole row
                await self._refusals.settle(group[0][0], RefusedMessage(namespace, "storage", reason))
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
        raise invalid(namespace, names.SUBJECT_TRAJECTORY, error) from None
    if trajectory.agent != agent:
        problem = f"agent: the body says {trajectory.agent!r}, the subject says {agent!r}"
        raise RefusedMessage(
            namespace, "agent", f"{problem}; publish it on {names.SUBJECT_TRAJECTORY}.<namespace>.<agent>"
        )
    return namespace, trajectory


DURABLE = "learnloop-requests"
_REQUESTS = StrictReader(TrainingRequest)
KEPT_IDS = 64
"""Ids of an agent's requests that are known again: those of the newest so many."""
# A redelivered older request must not replace a newer one: the stream's own time decides. Nor must one that its sender
# repeats after another one: the operator knows the newest id alone, and would train again.
_UPSERT = f"""
INSERT INTO agents AS agent
    (namespace, name, training_request, training_requested_at, training_wish, training_request_ids)
VALUES ($1, $2, $3, $4, $5, ARRAY[$3])
ON CONFLICT (namespace, name) DO UPDATE
SET training_request = excluded.training_request, training_requested_at = excluded.training_requested_at,
    training_wish = excluded.training_wish,
    training_request_ids = (excluded.training_request_ids || agent.training_request_ids)[1:{KEPT_IDS}]
WHERE (agent.training_requested_at IS NULL OR agent.training_requested_at <= excluded.training_requested_at)
    AND agent.training_request IS DISTINCT FROM excluded.training_request
    AND NOT excluded.training_request_ids <@ agent.training_request_ids
"""


class RequestConsumer:
    """Writes the newest request of each agent into its row."""

    def __init__(self, db: Database, refusals: Refusals, ack_wait: float) -> None:
        self._db = db
        self._refusals = refusals
        self._patience = min(0.5, ack_wait / 4)

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Returns when every message is settled."""
        for message in messages:
            while True:
                try:
                    await self._settle(message)
                    break
                except Unavailable:
                    await keep(messages)
                    await asyncio.sleep(self._patience)

    async def _settle(self, message: Msg) -> None:
        try:
            namespace, agent = self._refusals.addressed(message, names.SUBJECT_TRAINING_REQUEST)
            try:
                request: TrainingRequest = _REQUESTS.read(message.data)
            except ValidationError as error:
                raise invalid(namespace, names.SUBJECT_TRAINING_REQUEST, error) from None
        except RefusedMessage as refusal:
            await self._refusals.settle(message, refusal)
            return
        async with self._db.tenant(namespace) as connection:
            at, wish = message.metadata.timestamp, request.model_dump_json(exclude_defaults=True)
            await connection.execute(_UPSERT, namespace, agent, request.request_id, at, wish)
        with suppress(NatsError):
            await message.ack()


LOOK_SECONDS = 10.0  # between two looks at streams that nothing else may ask for long


class NatsSide:
    """The connection, the room in its streams, and who reads them."""

    def __init__(
        self,
        config: Config,
        db: Database,
        auth: Authenticator,
        metrics: Metrics,
        rate: EpisodeRate,
        cipher: StepCipher,
    ) -> None:
        self._cipher = cipher
        keys = config.lines("nats_issuer_key")
        issuers = [Issuer(seed_from(key)) for key in keys.values] if keys else []
        callout = AuthCallout(auth, issuers) if issuers else None
        relay = Relay(metrics, rate)
        self.bus = Bus(config, TenantConnection(config, callout, relay) if callout else None)
        self.room = Room(self.bus, metrics, {TRAJECTORIES: STREAM_DURABLE, TRAINING: DURABLE})
        self._config = config
        self._db = db
        self._metrics = metrics
        metrics.nats(self.bus.connected)

    def start(self, background: Background, users: Users, arrived: Callable[[str], None]) -> None:
        """Begins connecting and reading.

        Args:
            arrived: told the namespace of what was stored.
        """
        self.bus.start()
        background.repeat(self.bus.look, "streams", pause=LOOK_SECONDS)
        background.repeat(self.room.look, "room in streams", pause=ROOM_SECONDS)
        wait, db, metrics = self._config.ack_wait_seconds, self._db, self._metrics
        refusals = Refusals(self.bus, metrics)
        trajectories = TrajectoryConsumer(db, self.bus, users, metrics, refusals, arrived, wait, self._cipher)
        requests = RequestConsumer(db, refusals, wait)
        subject = names.SUBJECT_TRAINING_REQUEST
        readers = (
            (TRAJECTORIES, consumer_config(STREAM_DURABLE, [], wait), trajectories.handle),
            (TRAINING, consumer_config(DURABLE, [subject, f"{subject}.>"], wait), requests.handle),
        )
        for stream, config, handle in readers:
            background.once(self._read(stream, config, handle), stream)

    async def _read(self, stream: str, config: ConsumerConfig, handle: Handler) -> None:
        # A message in hand is a delivery used up: none is taken before it can be stored.
        await self._db.ready.wait()
        await pull_forever(self.bus, stream, config, self._remembered, handle)

    def _remembered(self) -> datetime:
        """The oldest arrival to begin with: an older message may have been stored and deleted by age, and would
        seem new."""
        return datetime.now(UTC) - timedelta(days=self._config.retention_days)
