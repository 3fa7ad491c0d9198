"""One process of the data plane: what callers may do, whether it is ready, and its parts, begun and ended in order."""

from learnloop_common.http_server import Drain
from learnloop_dataplane import errors
from learnloop_dataplane.access import kubernetes_api, pod_owners, tokens
from learnloop_dataplane.assembly.experience_parts import ExperienceParts, SharedParts, TrainingParts
from learnloop_dataplane.assembly.memory_parts import MemoryParts, PrivacyParts
from learnloop_dataplane.concurrency import limits
from learnloop_dataplane.config import Config
from learnloop_dataplane.postgres.database import LOOK_SECONDS, Statistics
from learnloop_dataplane.registry.artifacts import StorageQuotas

MOST_QUOTED = 500


class Readiness:
    """Asks the stores. `drain`: whether this process has been told to end."""

    def __init__(self, shared: SharedParts, memory: MemoryParts, training: TrainingParts, drain: Drain) -> None:
        self.drain = drain
        self._shared = shared
        self._memory = memory
        self._training = training

    async def problems(self) -> dict[str, str]:
        """Why nothing may be sent here now, by store; empty where PostgreSQL and NATS answer."""
        if self.drain.draining:
            return {"draining": "this process is shutting down; ask another one"}
        db, bus = self._shared.db, self._shared.bus
        problems: dict[str, str] = {}
        try:
            await db.ping()
        except errors.Unavailable as error:
            problems["postgresql"] = error.message if db.ready.is_set() else db.problem
        if bus:
            try:
                await bus.ping()
            except errors.Unavailable as error:
                problems["nats"] = error.message if bus.ready.is_set() else bus.problem
        return problems

    def degraded(self) -> dict[str, str]:
        """Problems, by part, of a process that still serves."""
        degraded = {
            work: f"the last pass failed ({error}) and is tried again; the log has the whole error"
            for work, error in self._shared.background.failing.items()
        }
        if self._shared.stream_room and self._shared.stream_room.problem:
            degraded["streams"] = self._shared.stream_room.problem
        if self._training.artifacts.problem:
            degraded["artifact store"] = self._training.artifacts.problem
        if self._memory.indexing.refusals:
            count = len(self._memory.indexing.refusals)  # anyone may ask: no tenant is named
            degraded["embedder"] = f"{count} namespaces keep the embedder before, which finds more; the log names them"
        if self._memory.following.problem:
            degraded["vector store"] = self._memory.following.problem[:MOST_QUOTED]
        return degraded


class CallerChecks:
    """The checks that routes make before they do anything."""

    def __init__(self, shared: SharedParts) -> None:
        config = shared.config
        self.authenticator = shared.authenticator
        self.anonymous = config.auth == "none"
        self._operator = config.operator_subject
        self._roles = kubernetes_api.Roles(config, shared.kube)
        ranks_only = not self.anonymous and config.run_writers == "ranks"
        self._owners = pod_owners.PodOwners(shared.kube) if shared.kube and ranks_only else None

    async def identify(self, authorization: str | None, namespace: str | None) -> tokens.Identity:
        """The caller; see `Authenticator.identify`."""
        return await self.authenticator.identify(authorization, namespace)

    async def require(
        self, caller: tokens.Identity, verb: kubernetes_api.Verb, resource: kubernetes_api.Resource
    ) -> None:
        """Raises a 403 where the caller is an agent and the route is not an agent's."""
        await self._roles.require(caller, verb, resource)

    async def require_rank(
        self, caller: tokens.Identity, job: str, attempt: int | None = None, *, fresh: bool = False
    ) -> int | None:
        """The attempt of the run that the caller reports; raises a 403 where it does not belong to the run's gang."""
        if self._owners is None:
            return attempt
        current = await self._owners.require_rank(caller, job, attempt, fresh=fresh)
        return attempt if current is None else current

    async def require_suite(self, caller: tokens.Identity, deployment: str, job: str) -> None:
        """Raises a 403 where the caller is not a pod of this gate suite's Job."""
        if self._owners is not None:
            await self._owners.require_suite(caller, deployment, job)

    def is_operator(self, caller: tokens.Identity) -> bool:
        return not self.anonymous and caller.subject == self._operator

    def require_operator(self, caller: tokens.Identity, message: str) -> None:
        """Raises a 403 with this message where the caller is not the operator's service account."""
        if not self.anonymous and caller.subject != self._operator:
            raise errors.ApiError(403, message, field="authorization")


REWRAP_SECONDS = 60.0
NOTIFY_SECONDS = 1.0


class DataPlane:
    """`start` does not wait; /readyz shows when the stores answer."""

    def __init__(self, config: Config) -> None:
        self.shared = SharedParts(config)
        self.callers = CallerChecks(self.shared)
        self.requests = limits.RequestShare(config.requests_per_namespace)
        self.experience = ExperienceParts(self.shared)
        self.memory = MemoryParts(self.shared)
        self.training = TrainingParts(self.shared)
        self.quotas = StorageQuotas(self.shared.db, config.quotas, self.shared.metrics)
        self.privacy = PrivacyParts(self.shared, self.experience, self.memory)
        self.readiness = Readiness(self.shared, self.memory, self.training, Drain(config.drain_seconds))
        self._statistics = Statistics(self.shared.db, config.database_url)

    def start(self) -> None:
        shared, again = self.shared, self.shared.background.repeat
        shared.db.start()
        again(self._statistics.refresh, "statistics", pause=LOOK_SECONDS)
        steps = (*self.experience.steps(), *self.memory.steps())
        shared.arrivals = shared.in_turns("rewards", *steps, every=shared.config.sweep_seconds)
        shared.in_turns("notifications", shared.reports.run, shared.notifications.run, every=NOTIFY_SECONDS)
        if shared.data_keys:
            shared.in_turns("data keys", shared.data_keys.rewrap, every=REWRAP_SECONDS)
        shared.in_turns("audit", shared.sealer.run, every=shared.config.sweep_seconds)
        for parts in (self.privacy, self.memory, self.training, self.experience):
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
