"""Consumers of NATS: episodes into PostgreSQL, and requests for training; acknowledged after the commit."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import asyncpg
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.training_request import TrainingRequest
from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane import data_keys, errors, privacy, strict_json
from learnloop_dataplane.access import tokens
from learnloop_dataplane.concurrency import background_loop, limits
from learnloop_dataplane.config import Config, seed_from
from learnloop_dataplane.experience.trajectories import Row, StoredTrajectories, prepare, safe_version, store
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats import auth_callout, event_outbox, relay
from learnloop_dataplane.nats.connection import ROOM_SECONDS, TRAINING, TRAJECTORIES, Bus, Room
from learnloop_dataplane.postgres.database import Database

log = logging.getLogger(__name__)
BATCH = 64
PASS_SECONDS = 60.0
"""Of one pass of reading: what ended the pass before is over when this one ends by itself."""
AGAIN_SECONDS = 2.0
"""Until a message comes again that could not be stored for no fault of its own."""
Handler = Callable[[Sequence[Msg]], Awaitable[None]]


async def consume(bus: Bus, stream: str, config: ConsumerConfig, handle: Handler) -> None:
    """Hands batches to `handle` for a while; makes streams and consumer where they are missing.

    Raises:
        Unavailable: NATS does not answer.
    """
    await bus.ready.wait()
    try:
        await bus.ensure()
        await bus.js.add_consumer(stream, config)
        reader = await bus.js.pull_subscribe_bind(durable=config.durable_name, stream=stream)
        try:
            end = time.monotonic() + PASS_SECONDS
            while time.monotonic() < end:
                try:
                    messages = await reader.fetch(BATCH, timeout=2)
                except TimeoutError:  # of nats-py, or asyncio's own, which nats-py lets through
                    # Nothing there. Asking also notices a consumer that is gone: its absence looks like silence.
                    await reader.consumer_info()
                else:
                    await handle(messages)
        finally:
            with suppress(NatsError, OSError):  # the connection is gone; so is the subscription
                await reader.unsubscribe()
    except (NatsError, TimeoutError, OSError) as error:
        log.warning("%s: reading is interrupted: %r", stream, error)
        raise errors.Unavailable("NATS") from error


async def again(messages: Iterable[Msg]) -> None:
    """Has NATS deliver these once more, in a while."""
    with suppress(NatsError):
        await asyncio.gather(*(message.nak(delay=AGAIN_SECONDS) for message in messages))


class Refusals:
    """Settles the messages that can never be stored, of both consumers: each is counted, and logged with the reason."""

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        self._bus, self._metrics = bus, metrics

    async def settle(self, message: Msg, refusal: event_outbox.RefusedMessage) -> None:
        """Takes the message out of its stream, where secrets and facts about people would lie for days."""
        meta = message.metadata
        self._metrics.count("refused", refusal.namespace, refusal.code)
        if meta.stream == TRAJECTORIES:
            self._metrics.not_collected(refusal.namespace, refusal.code)
        reason = privacy.redact_text(refusal.reason)
        log.info("refused %s/%s (%s): %r", meta.stream, meta.sequence.stream, refusal.code, reason)
        with suppress(NatsError, errors.Unavailable):
            if meta.stream != TRAJECTORIES:  # that stream drops settled messages by itself
                await self._bus.js.delete_msg(meta.stream, meta.sequence.stream)
            await message.term()


STREAM_DURABLE = "learnloop-store"
PORTION_BYTES = 8 * 2**20
"""Of messages that are read together: an episode takes nine times its bytes, so a batch of large ones would not fit."""
_READER = strict_json.StrictReader(Trajectory)
# Errors that a message's values cause. After any other error (rights, tables, disk) the message is delivered again.
REFUSED_VALUES = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)


class TrajectoryConsumer:
    """Stores batches of episodes.

    Args:
        stored: called with a namespace after new trajectories of it were committed.
    """

    def __init__(
        self,
        db: Database,
        users: privacy.Users,
        metrics: Metrics,
        refusals: Refusals,
        stored: Callable[[str], None],
        cipher: data_keys.StepCipher = data_keys.PLAIN,
    ) -> None:
        self._db, self._users, self._metrics, self._cipher = db, users, metrics, cipher
        self._refusals = refusals
        self._stored = stored

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Stores a batch; returns when every message is settled."""
        for portion in _portions(messages):
            await self._store(portion)

    async def _store(self, messages: Sequence[Msg]) -> None:
        """One transaction for each namespace."""
        groups: dict[str, list[tuple[Msg, Trajectory]]] = defaultdict(list)
        refused: list[tuple[Msg, event_outbox.RefusedMessage]] = []
        for message in messages:
            try:
                limits.body_bytes.set(len(message.data))
                namespace, trajectory = await limits.in_thread_if_large("", read, message.subject, message.data)
            except event_outbox.RefusedMessage as refusal:
                refused.append((message, refusal))
            else:
                groups[namespace].append((message, trajectory))
        await asyncio.gather(*(self._refusals.settle(message, refusal) for message, refusal in refused))
        for namespace, group in groups.items():
            await self._store_group(namespace, group)

    async def _store_group(self, namespace: str, group: list[tuple[Msg, Trajectory]]) -> None:
        messages = [message for message, _ in group]
        try:
            done = await self._persist(namespace, group)
        except errors.Unavailable:
            await again(messages)
        except Exception as error:
            if len(group) > 1:  # what is wrong with one of them must not delay the others
                for item in group:
                    await self._store_group(namespace, [item])
            elif isinstance(error, REFUSED_VALUES):
                reason = f"PostgreSQL refuses it: {error.args[0]}"  # its detail has the whole row
                await self._refusals.settle(messages[0], event_outbox.RefusedMessage(namespace, "storage", reason))
            else:
                log.warning("an episode of %s is not stored yet: %r", namespace, error)
                await again(messages)
        else:
            for new in {item.trajectory_id: item for _, item in group if item.trajectory_id in done.new}.values():
                self._metrics.agents.trajectory(namespace, new.agent, safe_version(new.policy_revision))
            for _ in group:
                self._metrics.count("attempts", namespace)
            for message in messages:
                with suppress(NatsError):
                    await message.ack()
            if done.new:
                self._stored(namespace)

    async def _persist(self, namespace: str, group: list[tuple[Msg, Trajectory]]) -> StoredTrajectories:
        """Stores what may be: nothing of what was erased, or of users who opted out."""
        shielded = await self._users.shield(namespace, dict(enumerate(item for _, item in group)))
        limits.body_bytes.set(sum(len(message.data) for message, _ in group))
        rows = await limits.in_thread_if_large(namespace, _prepared, [*shielded.values()])
        done = await store(self._db, namespace, rows, self._cipher) if rows else StoredTrajectories(set(), set())
        for item in shielded.values():
            if item is None or item.trajectory_id in done.refused:
                self._metrics.count("opted_out", namespace)
        return done


def _portions(messages: Sequence[Msg]) -> Iterator[list[Msg]]:
    """In order, each of `PORTION_BYTES` at most or of one message."""
    portion: list[Msg] = []
    for message in messages:
        if portion and sum(len(one.data) for one in (*portion, message)) > PORTION_BYTES:
            yield portion
            portion = []
        portion.append(message)
    yield portion


def _prepared(trajectories: Iterable[Trajectory | None]) -> list[Row]:
    return [prepare(item) for item in trajectories if item is not None]


def read(subject: str, data: bytes) -> tuple[str, Trajectory]:
    """Namespace and body of one message.

    Raises:
        RefusedMessage: with the reason; such a message can never be stored.
    """
    namespace, agent = event_outbox.split_subject(subject, names.SUBJECT_TRAJECTORY)
    try:
        trajectory: Trajectory = _READER.read(data)
    except ValidationError as error:
        raise event_outbox.invalid(namespace, names.SUBJECT_TRAJECTORY, error) from None
    if trajectory.agent != agent:
        problem = f"agent: the body says {trajectory.agent!r}, the subject says {agent!r}"
        raise event_outbox.RefusedMessage(
            namespace, "agent", f"{problem}; publish it on {names.SUBJECT_TRAJECTORY}.<namespace>.<agent>"
        )
    return namespace, trajectory


DURABLE = "learnloop-requests"
_REQUESTS = strict_json.StrictReader(TrainingRequest)
RECENT_IDS = 64
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
    training_request_ids = (excluded.training_request_ids || agent.training_request_ids)[1:{RECENT_IDS}]
WHERE (agent.training_requested_at IS NULL OR agent.training_requested_at <= excluded.training_requested_at)
    AND agent.training_request IS DISTINCT FROM excluded.training_request
    AND NOT excluded.training_request_ids <@ agent.training_request_ids
"""


class RequestConsumer:
    """Writes the newest request of each agent into its row."""

    def __init__(self, db: Database, refusals: Refusals) -> None:
        self._db, self._refusals = db, refusals

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Returns when every message is settled."""
        for message in messages:
            try:
                namespace, agent = event_outbox.split_subject(message.subject, names.SUBJECT_TRAINING_REQUEST)
                await self._keep(namespace, agent, message)
            except event_outbox.RefusedMessage as refusal:
                await self._refusals.settle(message, refusal)
            except errors.Unavailable:
                await again([message])
            except Exception as error:  # nor may one delay the others here
                log.warning("a request in %s is not stored yet: %r", message.subject, error)
                await again([message])
            else:
                with suppress(NatsError):
                    await message.ack()

    async def _keep(self, namespace: str, agent: str, message: Msg) -> None:
        try:
            request: TrainingRequest = _REQUESTS.read(message.data)
        except ValidationError as error:
            raise event_outbox.invalid(namespace, names.SUBJECT_TRAINING_REQUEST, error) from None
        async with self._db.tenant(namespace) as connection:
            at, wish = message.metadata.timestamp, request.model_dump_json(exclude_defaults=True)
            await connection.execute(_UPSERT, namespace, agent, request.request_id, at, wish)


LOOK_SECONDS = 10.0  # between two looks at streams that nothing else may ask for long


class NatsSide:
    """The connection, the room in its queue, and the consumers of its streams."""

    def __init__(
        self,
        config: Config,
        db: Database,
        auth: tokens.Authenticator,
        metrics: Metrics,
        rate: limits.EpisodeRate,
        cipher: data_keys.StepCipher,
    ) -> None:
        self._config, self._db, self._metrics, self._cipher = config, db, metrics, cipher
        keys = config.lines("nats_issuer_key")
        issuers = [auth_callout.Issuer(seed_from(key)) for key in keys.values] if keys else []
        tenants = (
            relay.TenantConnection(config, auth_callout.AuthCallout(auth, issuers), relay.Relay(metrics, rate))
            if issuers
            else None
        )
        self.bus = Bus(config, tenants)
        self.room = Room(self.bus, metrics)
        metrics.nats(self.bus.connected)

    def start(
        self, background: background_loop.Background, users: privacy.Users, arrived: Callable[[str], None]
    ) -> None:
        """Begins connecting and reading.

        Args:
            arrived: called with the namespace of what was stored.
        """
        self.bus.start()
        background.repeat(self.bus.look, "streams", pause=LOOK_SECONDS)
        background.repeat(self.room.look, "room in streams", pause=ROOM_SECONDS)
        refusals = Refusals(self.bus, self._metrics)
        trajectories = TrajectoryConsumer(self._db, users, self._metrics, refusals, arrived, self._cipher)
        subject = names.SUBJECT_TRAINING_REQUEST
        for stream, durable, subjects, handle in (
            (TRAJECTORIES, STREAM_DURABLE, [], trajectories.handle),
            (TRAINING, DURABLE, [subject, f"{subject}.>"], RequestConsumer(self._db, refusals).handle),
        ):
            config = ConsumerConfig(
                durable_name=durable,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=self._config.ack_wait_seconds,
                filter_subjects=subjects,
                max_ack_pending=BATCH * 4,
            )
            background.repeat(partial(consume, self.bus, stream, config, handle), stream)
