"""Puts the parts together and keeps the background work going."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.access.authentication import Authenticator
from learnloop_dataplane.access.certificates import Certificates
from learnloop_dataplane.audit.sealer import Sealer
from learnloop_dataplane.audit.signing import Signer
from learnloop_dataplane.blobs.blob_store import open_blobs
from learnloop_dataplane.concurrency.admission_queue import Turns
from learnloop_dataplane.concurrency.background_tasks import Background
from learnloop_dataplane.concurrency.exclusive_work import OneEach
from learnloop_dataplane.concurrency.namespace_rounds import Rounds
from learnloop_dataplane.config import Config
from learnloop_dataplane.ed25519_keys import seed_from
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.embedding.factory import open_embedder
from learnloop_dataplane.erasure.erasure_requests import Erasing
from learnloop_dataplane.erasure.retention import Retention
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.kubernetes.data_rights import Roles
from learnloop_dataplane.kubernetes.training_jobs import TrainingJobs
from learnloop_dataplane.lifecycle.budget_enforcement import PAUSE_SECONDS, BudgetKeeper
from learnloop_dataplane.lifecycle.budget_file import ToldBudgets
from learnloop_dataplane.lifecycle.distillation import CountingDistiller, Distiller
from learnloop_dataplane.lifecycle.scheduled_consolidation import Routine
from learnloop_dataplane.memories.episode_summaries import EpisodeMemories
from learnloop_dataplane.memories.grouped_writes import Writer
from learnloop_dataplane.memories.indexer import Indexer
from learnloop_dataplane.memories.indexing_schedule import IndexPace
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.planner_statistics import LOOK_SECONDS, Statistics
from learnloop_dataplane.privacy.pseudonyms import Users
from learnloop_dataplane.recall.cache_warming import warm
from learnloop_dataplane.recall.cached_agents import Reader
from learnloop_dataplane.recall.echo_gate import Shown
from learnloop_dataplane.recall.large_agents import SCANNED_UP_TO, BigAgents
from learnloop_dataplane.recall.recall import Recaller
from learnloop_dataplane.recall.recall_feedback import Feedback
from learnloop_dataplane.recall.recall_log import FLUSH_SECONDS, RecallLog
from learnloop_dataplane.recall.vector_sync import Following
from learnloop_dataplane.registry.artifact_retention import Keeping
from learnloop_dataplane.registry.artifacts import Artifacts
from learnloop_dataplane.registry.deployments import Deployments
from learnloop_dataplane.registry.training_runs import Runs
from learnloop_dataplane.rewards.dry_run import DryRun
from learnloop_dataplane.rewards.human_feedback import UserFeedback
from learnloop_dataplane.rewards.published_policies import Policies
from learnloop_dataplane.rewards.reward_events import RewardOutbox
from learnloop_dataplane.rewards.reward_hacking_reader import SignalReader
from learnloop_dataplane.rewards.reward_worker import RewardWorker
from learnloop_dataplane.studies.study_threads import Desk
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.tuning.memory_allocator import keep_small
from learnloop_dataplane.vectors.factory import open_vectors
from learnloop_dataplane.warehouse.clickhouse import ClickHouse
from learnloop_dataplane.warehouse.episode_shipper import Shipper

if TYPE_CHECKING:
    from learnloop_dataplane.experience.nats_workers import NatsSide
    from learnloop_dataplane.kubernetes.api_client import KubeApi
    from learnloop_dataplane.kubernetes.token_review import TokenReviews
    from learnloop_dataplane.kubernetes.training_ranks import GangMembers

log = logging.getLogger(__name__)
RETENTION_SECONDS = 3600.0
SHIP_SECONDS = 1.0
CONSOLIDATION_SECONDS = 60.0  # between two looks for agents whose turn it is
STORES_SECONDS = 10.0  # between two looks at what nothing else may ask for long
RECALLS_AT_ONCE = 8  # enough to keep PostgreSQL busy while this process ranks
HEAVY_AT_ONCE = 2  # of each kind of work that reads all of an agent: the processor and the pool are everybody's


class Service:
    """Everything one process holds. `start` returns at once; /readyz tells when the stores answer."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics()
        self.db = Database(config.dsn.get_secret_value(), pool_size=config.pool_size)
        self.background = Background(self.metrics, self.db.ready)
        self._statistics = Statistics(self.db, config.dsn.get_secret_value())
        asks = config.auth != "none" and (config.roles == "rbac" or config.run_writers == "ranks")
        self.kube = _kube(config) if config.training_api or config.auth == "tokenreview" or asks else None
        reviewer = _reviewer(self.kube) if self.kube and config.auth == "tokenreview" else None
        self.auth = Authenticator(config, reviewer)
        self.roles = Roles(config, self.kube)
        self.certificates = Certificates(config)
        ranks_only = config.auth != "none" and config.run_writers == "ranks"
        self.gang_members = _gang_members(self.kube) if self.kube and ranks_only else None
        self._nats = _nats(config, self.db, self.auth, self.metrics) if config.nats_url else None
        self.bus = self._nats.bus if self._nats else None
        self.room = self._nats.room if self._nats else None
        self.blobs = open_blobs(config.artifacts)
        self.artifacts = Artifacts(self.db, self.blobs)
        self.keeping = Keeping(self.db, self.blobs, config.artifact_retention_days)
        self.signer = Signer(seed_from(config.audit_key.get_secret_value())) if config.audit_key else None
        self.sealer = Sealer(self.db, self.blobs, self.signer, every=config.audit_checkpoint_seconds)
        self._events = EventOutbox(self.db, self.bus)
        self.runs = Runs(self.db, self.blobs, self.metrics, self._events)
        self.studies = Desk(config.dsn.get_secret_value())
        analyzer = Analyzer(config.language)
        embedder_key = config.embedder_key.get_secret_value() if config.embedder_key else None
        self.embedder: Embedder = open_embedder(config.embedder, config.embedder_dimensions, embedder_key, analyzer)
        self.distiller: Distiller = CountingDistiller()
        self.consolidations = OneEach("consolidation", HEAVY_AT_ONCE)
        self.forgettings = OneEach("forgetting", HEAVY_AT_ONCE)
        self.rewritings = OneEach("a fork, restore or rollback", HEAVY_AT_ONCE)
        self._indexer = Indexer(self.db, analyzer, self.embedder)
        self.indexing = IndexPace(lambda namespace: self.background.attempt(self._indexer.run, namespace))
        self.vectors = open_vectors(config, self.db, self.embedder)
        self.reader = Reader(self.db, self.embedder, config.cache_mib * 2**20)
        above = config.exact_up_to or max(self.reader.exact_up_to, SCANNED_UP_TO)
        stored_above = config.nearest_up_to if config.weaviate_url is None else above
        self._big = BigAgents(self.db, self.vectors, above=above, stored_above=stored_above)
        self.following = Following(self._big, self.vectors, self.metrics)
        self.recalls = RecallLog(self.db)
        self.shown = Shown()
        self.feedback = Feedback(self.db, self.recalls)
        self.writer = Writer(self.db, analyzer, self.embedder, self.indexing.stored)
        self.recaller = Recaller(
            self.db, analyzer, self.embedder, self.recalls, self.shown, self._big, self.reader, self._indexer
        )
        limit = MemoryBudget(memories=config.memories_per_agent, bytes=config.memory_bytes_per_agent)
        told = ToldBudgets(Path(config.agent_budgets_file) if config.agent_budgets_file else None, self.metrics)
        self.budgets = BudgetKeeper(self.db, self.metrics, limit, told, config.index_check_seconds, self.background)
        self.routine = Routine(
            self.db,
            lambda: self.distiller,
            self.metrics,
            config.consolidate_seconds,
            self.background,
            self.consolidations,
            self.indexing.stored,
        )
        self.turns = Turns(at_once=RECALLS_AT_ONCE, patience=config.recall_wait_ms / 1000)
        warehouse = config.warehouse.get_secret_value() if config.warehouse else None
        self.warehouse = ClickHouse(warehouse, days=config.warehouse_days) if warehouse else None
        self._shipper = Shipper(self.db, self.warehouse, self.metrics.warehoused) if self.warehouse else None
        self.dry_run = DryRun(self.db, self.warehouse)
        self.signals = SignalReader(self.db)
        self.policies = Policies(self.db)
        self._rewards = RewardWorker(self.db, self.policies, self.metrics, announce=self.bus is not None)
        self.users = Users(self.db)
        self.user_feedback = UserFeedback(self.db, self.users, self._events)
        stores = (self.db, self.bus, self.users, self.user_feedback, self.recalls, self._big)
        self.erasing = Erasing(*stores, self.warehouse, self.sealer, self.signer)
        self.training = TrainingJobs(self.db, self.kube if config.training_api else None)
        self.deployments = Deployments(self.db, self._events)
        self._episodes = EpisodeMemories(self.db)
        self._outbox = RewardOutbox(self.db, self.bus) if self.bus else None
        self._retention = Retention(self.db, config.retention_days, warehouse=self.warehouse is not None)
        self._work = Rounds(self.db.namespaces, config.sweep_seconds)

    def start(self) -> None:
        """Begins everything."""
        self.db.start()
        again, sweep, check = self.background.repeat, self.config.sweep_seconds, self.config.index_check_seconds
        again(self._statistics.refresh, "statistics", pause=LOOK_SECONDS)
        again(self._look, "rewards")
        again(self._retention.run, "retention", pause=RETENTION_SECONDS)
        again(self.indexing.run, "indexer")
        again(keep_small, "heap", pause=RETENTION_SECONDS)
        again(lambda: self._everywhere(self._big.run), "large agents", pause=check)
        again(self.budgets.look, "budgets", pause=min(PAUSE_SECONDS, check))
        if every := self.config.consolidate_seconds:
            again(self.routine.look, "consolidation", pause=min(every, CONSOLIDATION_SECONDS))
        again(self._follow, "vectors", pause=sweep)
        again(lambda: self._everywhere(self.following.fill), "filling of vectors", pause=sweep)
        # Audit records go into their chains, wherever they were left, by this process or another one.
        again(lambda: self._everywhere(self.sealer.run), "audit", pause=sweep)
        again(self.recalls.write, "recall log", pause=FLUSH_SECONDS)
        again(self.artifacts.look, "artifact store", pause=STORES_SECONDS)
        self.background.once(self._warm(), "warming up")
        if shipper := self._shipper:
            again(lambda: self._ship(shipper), "warehouse", pause=SHIP_SECONDS)
        if self._nats:
            self._nats.start(self.background, self.users, self.arrived)

    async def close(self) -> None:
        """Stops everything; unfinished work is found again at the next start."""
        await self.background.close()
        self.studies.close()
        await self.recalls.flush()
        if self.bus:
            await self.bus.close()
        if self.warehouse:
            await self.warehouse.close()
        if self.kube:
            await self.kube.close()
        await self.vectors.close()
        await self.db.close()

    def arrived(self, namespace: str) -> None:
        """New work may be waiting in this namespace."""
        self._work.changed(namespace)

    async def _look(self) -> None:
        """Rewards, announcements and episode memories: at once where something arrived, everywhere now and then."""
        for namespace in await self._work.next():
            await self._work_on(namespace)

    async def _work_on(self, namespace: str) -> None:
        steps: list[Callable[[str], Awaitable[int]]] = [self._rewards.run, self.user_feedback.run, self._events.run]
        if self._outbox:
            steps.append(self._outbox.run)
        steps += [self.feedback.run, self._episodes.run, self._indexer.reterm, self._indexer.reembed]
        for step in steps:
            await self.background.attempt(step, namespace)
        self.indexing.stored(namespace)  # whatever waits for the indexer, whoever left it there

    async def _everywhere(self, step: Callable[[str], Awaitable[int]]) -> None:
        for namespace in await self.db.namespaces():
            await self.background.attempt(step, namespace)

    async def _warm(self) -> None:
        await self.db.ready.wait()
        try:
            await warm(self.db, self.reader)
        except Unavailable as error:
            log.info("agents' memories are read when they are asked: %s", error)

    async def _follow(self) -> None:
        """The vector store, beside the other work: one that does not answer delays nothing else."""
        await self.following.look()
        await self._everywhere(self.following.run)

    async def _ship(self, shipper: Shipper) -> None:
        """Beside the other work, so that a warehouse that does not answer delays nothing else."""
        try:
            for namespace in await self.db.namespaces():
                await shipper.run(namespace)
        except Unavailable:
            self.metrics.warehouse_failures.inc()
            raise


# What talks to the API server (httpx) or to NATS is imported where a setting has it talk.
def _kube(config: Config) -> "KubeApi":
    from learnloop_dataplane.kubernetes.api_client import KubeApi

    return KubeApi(config)


def _gang_members(kube: "KubeApi") -> "GangMembers":
    from learnloop_dataplane.kubernetes.training_ranks import GangMembers

    return GangMembers(kube)


def _reviewer(kube: "KubeApi") -> "TokenReviews":
    from learnloop_dataplane.kubernetes.token_review import TokenReviews

    return TokenReviews(kube)


def _nats(config: Config, db: Database, auth: Authenticator, metrics: Metrics) -> "NatsSide":
    from learnloop_dataplane.experience.nats_workers import NatsSide

    return NatsSide(config, db, auth, metrics)
