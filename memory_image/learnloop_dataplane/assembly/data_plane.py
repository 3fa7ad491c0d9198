"""One process of the data plane: its parts, begun and ended in order."""

from learnloop_common.http_server import Drain
from learnloop_dataplane.access.callers import RequestShare
from learnloop_dataplane.assembly.audit_parts import AuditParts
from learnloop_dataplane.assembly.caller_checks import CallerChecks
from learnloop_dataplane.assembly.experience_parts import ExperienceParts
from learnloop_dataplane.assembly.memory_parts import MemoryParts
from learnloop_dataplane.assembly.privacy_parts import PrivacyParts
from learnloop_dataplane.assembly.readiness import Readiness
from learnloop_dataplane.assembly.shared_parts import SharedParts
from learnloop_dataplane.assembly.training_parts import TrainingParts
from learnloop_dataplane.config import Config
from learnloop_dataplane.postgres.partitions import make_ahead
from learnloop_dataplane.postgres.planner_statistics import LOOK_SECONDS, Statistics
from learnloop_dataplane.registry.artifacts import StorageQuotas

REWRAP_SECONDS = 60.0
NOTIFY_SECONDS = 1.0
PARTITION_SECONDS = 3600.0


class DataPlane:
    """`start` returns at once; /readyz tells when the stores answer."""

    def __init__(self, config: Config) -> None:
        self.shared = SharedParts(config)
        self.callers = CallerChecks(self.shared)
        self.requests = RequestShare(config.requests_per_namespace)
        self.audit = AuditParts(self.shared)
        self.experience = ExperienceParts(self.shared)
        self.memory = MemoryParts(self.shared)
        self.training = TrainingParts(self.shared)
        self.quotas = StorageQuotas(self.shared.db, config.quotas, self.shared.metrics)
        self.privacy = PrivacyParts(self.shared, self.audit, self.experience, self.memory)
        self.readiness = Readiness(self.shared, self.memory, self.training, Drain(config.drain_seconds))
        self._statistics = Statistics(self.shared.db, config.dsn.get_secret_value())

    def start(self) -> None:
        """Begins everything."""
        shared, again = self.shared, self.shared.background.repeat
        shared.db.start()
        again(self._statistics.refresh, "statistics", pause=LOOK_SECONDS)
        again(self._make_partitions, "partitions", pause=PARTITION_SECONDS)
        steps = (*self.experience.steps(), *self.memory.steps())
        shared.arrivals = shared.in_turns("rewards", *steps, every=shared.config.sweep_seconds)
        shared.in_turns("notifications", shared.reports.run, shared.notifications.run, every=NOTIFY_SECONDS)
        if shared.data_keys:
            shared.in_turns("data keys", shared.data_keys.rewrap, every=REWRAP_SECONDS)
        for parts in (self.privacy, self.memory, self.audit, self.training, self.experience):
            parts.start()
        if shared.nats:
            shared.nats.start(shared.background, shared.users, shared.arrived)

    async def close(self) -> None:
        """Stops everything; unfinished work is found again at the next start."""
        shared = self.shared
        await shared.background.close()
        await shared.notifications.close()
        self.training.close()
        await self.memory.close()
        await self.experience.close()
        for store in (shared.bus, shared.warehouse, shared.kube, shared.db):
            if store is not None:
                await store.close()

    async def _make_partitions(self) -> None:
        """Long before they are needed: two weeks of failures are borne."""
        config = self.shared.config
        await make_ahead(config.dsn.get_secret_value(), config.retention_days)
