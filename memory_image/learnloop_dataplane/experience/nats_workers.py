"""What talks to NATS, put together: a process without one does not load its client (a twentieth of its start)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from nats.js.api import ConsumerConfig

from learnloop_api import names
from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.access.authentication import Authenticator
from learnloop_dataplane.concurrency.background_tasks import Background
from learnloop_dataplane.concurrency.episode_rate import EpisodeRate
from learnloop_dataplane.config import Config
from learnloop_dataplane.ed25519_keys import seed_from
from learnloop_dataplane.encryption.step_cipher import StepCipher
from learnloop_dataplane.experience import training_requests
from learnloop_dataplane.experience.dead_letters import DeadLetters
from learnloop_dataplane.experience.trajectory_consumer import STREAM_DURABLE, TrajectoryConsumer
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.auth_callout import AuthCallout, Issuer
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.pull_consumer import Handler, consumer_config, pull_forever
from learnloop_dataplane.nats.relay import Relay
from learnloop_dataplane.nats.stream_capacity import ROOM_SECONDS, Room
from learnloop_dataplane.nats.streams import TRAINING, TRAJECTORIES
from learnloop_dataplane.nats.tenants import TenantConnection
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.pseudonyms import Users

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
        keys = config.nats_issuer_key
        issuers = [Issuer(seed_from(key)) for key in KeyLines.parse(keys.get_secret_value()).values] if keys else []
        callout = AuthCallout(auth, issuers) if issuers else None
        relay = Relay(metrics, rate)
        self.bus = Bus(config, TenantConnection(config, callout, relay) if callout else None)
        self.room = Room(self.bus, metrics, {TRAJECTORIES: STREAM_DURABLE, TRAINING: training_requests.DURABLE})
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
        dead_letters = DeadLetters(db, self.bus, users, metrics, wait)
        trajectories = TrajectoryConsumer(db, self.bus, users, metrics, dead_letters, arrived, wait, self._cipher)
        asked = training_requests.RequestConsumer(db, dead_letters, wait)
        subject = names.SUBJECT_TRAINING_REQUEST
        readers = (
            (TRAJECTORIES, consumer_config(STREAM_DURABLE, [], wait), trajectories.handle),
            (TRAINING, consumer_config(training_requests.DURABLE, [subject, f"{subject}.>"], wait), asked.handle),
        )
        for stream, config, handle in readers:
            background.once(self._read(stream, config, handle), stream)

    async def _read(self, stream: str, config: ConsumerConfig, handle: Handler) -> None:
        # A message in hand is a delivery used up: none is taken before it can be stored.
        await self._db.ready.wait()
        await pull_forever(self.bus, stream, config, self._remembered, handle)

    def _remembered(self) -> datetime:
        """What arrived before it may have been handled, and then deleted by age: once more, it would seem new."""
        return datetime.now(UTC) - timedelta(days=self._config.retention_days)
