"""Takes in one episode that came over HTTP: through the stream where there is one, else straight into PostgreSQL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic_core import to_json

from learnloop_api import names
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, Trajectory
from learnloop_common.redaction.fields import safe_measurements
from learnloop_dataplane.concurrency.large_work import in_thread_if_large
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import NoRoom, Unavailable
from learnloop_dataplane.experience.trajectory_store import prepare, store
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.subjects import tenants_id
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.pseudonyms import Users
from learnloop_dataplane.privacy.redaction import redact, redact_text

if TYPE_CHECKING:
    from learnloop_dataplane.nats.connection import Bus
    from learnloop_dataplane.nats.stream_capacity import Room


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of an episode: known before, and kept at all (not where its person opted out, or it was erased)."""

    duplicate: bool
    stored: bool


class TrajectoryIntake:
    """Accepts episodes of all namespaces.

    Args:
        stream: the connection to NATS and the room in its streams; None: episodes go straight into PostgreSQL.
        arrived: is told a namespace in which an episode was stored.
    """

    def __init__(
        self,
        db: Database,
        users: Users,
        metrics: Metrics,
        stream: "tuple[Bus, Room] | None",
        arrived: Callable[[str], None],
        cipher: StepCipher = PLAIN,
    ) -> None:
        self._cipher = cipher
        self._db = db
        self._users = users
        self._metrics = metrics
        self._stream = stream
        self._arrived = arrived

    async def accept(self, namespace: str, trajectory: Trajectory) -> Accepted:
        """Keeps one episode; it is durable when this returns.

        Raises:
            Unavailable: nothing was kept.
            ApiError: 503, the stream is full and this namespace has its share of it.
        """
        shielded = (await self._users.shield(namespace, {0: trajectory}))[0]
        if shielded is None:
            self._metrics.opted_out(namespace)
            self._metrics.collected(namespace)
            return Accepted(duplicate=False, stored=False)
        if self._stream is None:
            return await self._store(namespace, shielded)
        # From here on the reader of the stream counts what becomes of it.
        bus, room = self._stream
        subject = f"{names.SUBJECT_TRAJECTORY}.{namespace}.{shielded.agent}"
        # What came by NATS already is known again: the SDK sends this id there.
        message_id = tenants_id(namespace, subject, f"{namespace}/{shielded.trajectory_id}")
        try:
            ack = await bus.publish(subject, await in_thread_if_large(namespace, redacted, shielded), message_id)
        except NoRoom:  # it is an Unavailable, too
            # Full of others' episodes, of which there is no end: this one need not wait behind them.
            try:
                room.admit(namespace)
            except NoRoom:
                self._metrics.not_collected(namespace, "no_room")
                raise
            return await self._store(namespace, shielded)
        except Unavailable:
            self._metrics.not_collected(namespace, "unavailable")
            raise
        return Accepted(duplicate=bool(ack.duplicate), stored=True)

    async def _store(self, namespace: str, trajectory: Trajectory) -> Accepted:
        row = await in_thread_if_large(namespace, prepare, trajectory)
        try:
            stored = await store(self._db, namespace, [row], self._cipher)
        except Unavailable:
            self._metrics.not_collected(namespace, "unavailable")
            raise
        self._metrics.collected(namespace)
        if stored.refused:
            return Accepted(duplicate=False, stored=False)
        if stored.new:
            self._metrics.agents.trajectory(namespace, trajectory.agent, safe_version(trajectory.policy_revision))
            self._arrived(namespace)
        return Accepted(duplicate=not stored.new, stored=True)


def safe_version(policy_revision: str) -> str:
    """The name of a model version as tables, streams and metrics may have it."""
    return redact_text(policy_revision)[:MAX_REVISION]


def redacted(trajectory: Trajectory) -> bytes:
    """The message as it may lie in the stream for a month."""
    body = trajectory.model_dump()
    for field in ("metadata", "steps", "last_observation", "result"):
        body[field] = redact(body[field])
    body["task"] = redact_text(trajectory.task)[:MAX_TASK]  # a mark may be longer than what it stands for
    body["policy_revision"] = safe_version(trajectory.policy_revision)
    body["outcome"]["values"] = safe_measurements(trajectory.outcome.values, redact_text)
    return to_json(body)
