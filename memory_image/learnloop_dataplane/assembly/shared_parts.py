"""What several groups of parts need: the stores, the figures, the background work and who waits for it."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.access.callers import Authenticator, accepted_audiences
from learnloop_dataplane.audit.signing import successive_signer
from learnloop_dataplane.blobs.blob_store import BlobStore, open_blobs
from learnloop_dataplane.concurrency.episode_rate import EpisodeRate
from learnloop_dataplane.concurrency.loop import Background, Work
from learnloop_dataplane.config import Config
from learnloop_dataplane.encryption.sealed_blobs import SealedBlobs
from learnloop_dataplane.encryption.step_cipher import DataKeys, StepCipher
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.notifications.approvals import References
from learnloop_dataplane.notifications.outbox import Notifications
from learnloop_dataplane.notifications.reports import Reports
from learnloop_dataplane.notifications.webhook import Webhook
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users
from learnloop_dataplane.warehouse.clickhouse import ClickHouse
from learnloop_dataplane.wrapping_keys import WrappingKeys

if TYPE_CHECKING:
    from learnloop_dataplane.experience.nats_workers import NatsSide
    from learnloop_dataplane.kubernetes.api_client import KubeApi, TokenReviews

Step = Callable[[str], Awaitable[int]]
"""Work on one namespace; returns how much was done."""


class SharedParts:
    """Opens nothing yet: the connections are made by `DataPlane.start`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics()
        days = config.retention_days
        self.db = Database(
            config.dsn.get_secret_value(),
            pool_size=config.pool_size,
            retention_days=days,
            first=_logins(config) if config.database_is_own else None,
        )
        self.background = Background(self.metrics, self.db.ready)
        self.arrivals: Work | None = None
        keys = config.encryption_keys
        wrapping = WrappingKeys.parse(keys.get_secret_value()) if keys else None
        self.data_keys = DataKeys(self.db, wrapping) if wrapping else None
        self.step_cipher = StepCipher(self.data_keys)
        self.plain_blobs = open_blobs(config.artifacts)
        self.blobs: BlobStore = self.plain_blobs
        if self.data_keys:
            self.blobs = SealedBlobs(self.plain_blobs, self.db, self.data_keys)
        asks = config.auth != "none" and (config.roles == "rbac" or config.run_writers == "ranks")
        self.kube = (
            _kube(config) if config.training_api or config.sandbox or config.auth == "tokenreview" or asks else None
        )
        reviewer = _reviewer(self.kube, config) if self.kube and config.auth == "tokenreview" else None
        self.authenticator = Authenticator(config, reviewer)
        self.rate = EpisodeRate(config.quotas, self.metrics)
        parts = (self.db, self.authenticator, self.metrics, self.rate, self.step_cipher)
        self.nats = _nats(config, *parts) if config.nats_url else None
        self.bus = self.nats.bus if self.nats else None
        self.stream_room = self.nats.room if self.nats else None
        self.references = References(signer) if (signer := successive_signer(config)) else None
        self.notifications = Notifications(
            self.db,
            Webhook.parse(config.notifications),
            config.notifications_key_file,
            self.metrics,
            self.references,
        )
        self.reports = Reports(self.db, self.notifications)
        self.events = EventOutbox(self.db, self.bus, self.notifications.put)
        self.users = Users(self.db)
        warehouse = config.warehouse.get_secret_value() if config.warehouse else None
        self.warehouse = (
            ClickHouse(warehouse, days=config.warehouse_days, cluster=config.warehouse_cluster) if warehouse else None
        )

    def arrived(self, namespace: str) -> None:
        """New work may be waiting in this namespace."""
        if self.arrivals is not None:
            self.arrivals.changed(namespace)

    def in_turns(self, name: str, *steps: Step, every: float, at_once: int = 1) -> Work:
        """Runs these steps, one after the other, in turns of namespaces; a step that fails stops no other."""

        async def turn(namespace: str) -> int:
            return max([await self.background.attempt(step, namespace) for step in steps])

        work = Work(turn, self.db.namespaces, every=every, at_once=at_once)
        self.background.turns(work, name)
        return work


# What talks to the API server (httpx) or to NATS is imported where a setting has it talk.
def _logins(config: Config) -> Callable[[], Awaitable[None]]:
    from learnloop_dataplane.postgres.logins.superuser import keep

    assert config.owner_dsn, "Config.from_env refuses it without a password"
    assert config.database_password
    lines = KeyLines.parse(config.database_password.get_secret_value())
    return partial(keep, config.owner_dsn.get_secret_value(), lines)


def _kube(config: Config) -> "KubeApi":
    from learnloop_dataplane.kubernetes.api_client import KubeApi

    return KubeApi(config)


def _reviewer(kube: "KubeApi", config: Config) -> "TokenReviews":
    from learnloop_dataplane.kubernetes.api_client import TokenReviews

    return TokenReviews(kube, accepted_audiences(config))


def _nats(
    config: Config, db: Database, auth: Authenticator, metrics: Metrics, rate: EpisodeRate, cipher: StepCipher
) -> "NatsSide":
    from learnloop_dataplane.experience.nats_workers import NatsSide

    return NatsSide(config, db, auth, metrics, rate, cipher)
