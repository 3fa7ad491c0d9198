"""Memories and people's rights: what routes and background work need of them."""

import logging
import time
from pathlib import Path
from urllib.parse import urlsplit

from learnloop_api.wire.memory_budget import MemoryBudget
from learnloop_dataplane import openai_client, stems
from learnloop_dataplane.assembly.experience_parts import ExperienceParts, SharedParts, Step
from learnloop_dataplane.concurrency.limits import FairPlaces, OneEach
from learnloop_dataplane.config import Config
from learnloop_dataplane.embedding.embedder import Embedder, QuestionVectors, open_embedder
from learnloop_dataplane.erasure import erased_before_restore, erasure, retention
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.lifecycle import consolidation, distillation, forgetting
from learnloop_dataplane.memories import episode_summaries, indexing, memory_store, model_kinds
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.recall import candidates, memory_groups, outcomes
from learnloop_dataplane.recall.recall import FLUSH_SECONDS, Ask, Recall, Recaller, RecallLog
from learnloop_dataplane.vectors.vector_store import Following, PgVectors, VectorStore

CONSOLIDATION_SECONDS = 60.0  # between two looks for agents whose turn it is
PING_SECONDS = 10.0
HEAVY_AT_ONCE = 2  # of each kind of work that reads or rewrites all of an agent's memory
RECALLS_AT_ONCE = 8  # enough to keep PostgreSQL busy while this process ranks
MOST_WAITING = 64  # recalls of a namespace; they take some 100 ms


class MemoryParts:
    """Objects that the memory routes and background work share."""

    def __init__(self, shared: SharedParts) -> None:
        config, db = shared.config, shared.db
        self._shared = shared
        analyzer = stems.Analyzer(config.language)
        embedder, before = _embedder(config, config.embedder), _embedder(config, config.embedder_before)
        shared.metrics.without_vector.set_function(lambda: getattr(embedder, "without_vector", 0))
        self.vectors = open_vectors(config, db, embedder)
        self.following = Following(self.vectors, shared.metrics)
        self.candidates = candidates.Candidates(db, self.vectors, config.exact_up_to)
        self.indexing = indexing.Indexing(db, analyzer, embedder, before)
        shared.metrics.embedder_refused.set_function(lambda: len(self.indexing.refusals))
        limit = MemoryBudget(memories=config.memories_per_agent, bytes=config.memory_bytes_per_agent)
        file = forgetting.BudgetFile(
            Path(config.agent_budgets_file) if config.agent_budgets_file else None, shared.metrics
        )
        self.budgets = forgetting.Budgets(db, shared.metrics, limit, file)
        self.recall_log = RecallLog(db)
        self.recalls = Recaller(
            db,
            analyzer,
            QuestionVectors(self.indexing.embedder, config.embedder_recall_ms / 1000),
            self.candidates,
            memory_groups.Groups(db, file.groups),
            self.recall_log,
        )
        self.places = FairPlaces(RECALLS_AT_ONCE, MOST_WAITING)
        self.outcomes = outcomes.Outcomes(db, self.recall_log, shared.metrics.agents.judged)
        arrived = shared.arrived
        model, seconds = _model(config), 2 * config.distiller_seconds
        self._kinds = model_kinds.ModelKinds(db, model, seconds) if model else None
        self.writes = memory_store.MemoryWrites(db, shared.users, analyzer, arrived, asks=model is not None)
        self.forgettings = OneEach("forgetting", HEAVY_AT_ONCE)
        self.rewrites = OneEach("a rollback", HEAVY_AT_ONCE)
        distiller = distillation.ModelDistiller(model, seconds) if model else distillation.CountingDistiller()
        self.consolidation = consolidation.Consolidation(
            db, distiller, analyzer, shared.metrics, self.recall_log, config.consolidate_seconds, arrived
        )
        self.episodes = episode_summaries.EpisodeMemories(db, analyzer, shared.step_cipher)

    def start(self) -> None:
        shared, config = self._shared, self._shared.config
        again, sweep, check = shared.background.repeat, config.sweep_seconds, config.index_check_seconds
        self._by_models = [shared.in_turns("embeddings", self.indexing.embed, every=sweep)]
        if self._kinds is not None:
            self._by_models += [shared.in_turns("kinds", self._kinds.run, every=sweep, at_once=HEAVY_AT_ONCE)]
        shared.in_turns("large agents", self.candidates.list_words, every=check)
        self.budgets.work = shared.in_turns("budgets", self.budgets.keep, every=check)
        if every := config.consolidate_seconds:
            shared.in_turns("consolidation", self.consolidation.run, every=min(every, CONSOLIDATION_SECONDS))
        shared.in_turns("vectors", self.following.run, every=sweep)
        again(self.following.ping, "vector store", pause=PING_SECONDS)
        again(self.recall_log.write, "recall log", pause=FLUSH_SECONDS)

    async def close(self) -> None:
        """Writes down what was recalled; the background work has ended by then."""
        await self.recall_log.flush()
        if self.vectors is not None:
            await self.vectors.close()

    async def recall(self, namespace: str, ask: Ask) -> Recall:
        started = time.perf_counter()
        answer = await self.recalls.recall(namespace, ask)
        self._shared.metrics.recall(time.perf_counter() - started)
        return answer

    def steps(self) -> list[Step]:
        """Background work of a namespace where something arrived, in order."""
        return [self.outcomes.run, self.episodes.run, self.indexing.restem, self._ask_models_soon]

    async def _ask_models_soon(self, namespace: str) -> int:
        """Slow models have turns of their own: no reward waits for them."""
        for work in self._by_models:
            work.changed(namespace)
        return 0


def _embedder(config: Config, setting: str) -> Embedder | None:
    key = config.embedder_key.get_secret_value() if config.embedder_key else None
    return open_embedder(setting, config.embedder_dimensions, key, seconds=config.embedder_seconds)


def _model(config: Config) -> openai_client.ChatModel | None:
    """The distiller's language model, where one is set."""
    url, _, model = config.distiller.partition("#")
    if not model:
        return None
    key = config.distiller_key.get_secret_value() if config.distiller_key else None
    probe, seconds, most = openai_client.chat_probe(model), config.distiller_seconds, distillation.MOST_ANSWER_BYTES
    server = openai_client.ModelServer(url, probe, key, seconds=seconds, most_bytes=most)
    return openai_client.ChatModel(server, model, distillation.MOST_TOKENS)


RETENTION_SECONDS = 3600.0
log = logging.getLogger(__name__)


class PrivacyParts:
    """Erasure, opt-outs and retention."""

    def __init__(self, shared: SharedParts, experience: ExperienceParts, memory: MemoryParts) -> None:
        self._shared = shared
        self._looked_back = False
        self.users = shared.users
        records = erased_before_restore.LastingRecords(shared.plain_blobs)
        stores = (shared.users, experience.opinions, memory.recall_log, memory.vectors)
        self.erasing = erasure.Erasing(shared.db, shared.bus, *stores, shared.warehouse, shared.sealer, records)
        self.retention = retention.Retention(
            shared.db, shared.config.retention_days, warehouse=shared.warehouse is not None
        )

    def start(self) -> None:
        """Begins deleting what is older than the time of retention, and what a restored database has back."""
        self._shared.background.repeat(self._erase_again, "erasures", pause=RETENTION_SECONDS)
        self._shared.background.repeat(self.retention.run, "retention", pause=RETENTION_SECONDS)

    async def _erase_again(self) -> None:
        """Run once after each start: a database in use is never restored."""
        if not self._looked_back:
            if count := await self.erasing.again():
                log.warning("the database had %d erasures and opt-outs less than are on record: made again", count)
            self._looked_back = True


GRPC_PORT = 50051


def open_vectors(config: Config, db: Database, embedder: Embedder | None) -> VectorStore | None:
    """Weaviate where its URL is given, otherwise pgvector; None without an embedder.

    weaviate-client, which brings gRPC, is imported only where it is used.

    Raises:
        ConfigError: the URL has no host or an invalid port, or no embedder is set.
    """
    if embedder is None:
        if config.weaviate_url is not None:
            raise ConfigError(
                f"LEARNLOOP_WEAVIATE_URL={config.weaviate_url}: a Weaviate holds vectors, and LEARNLOOP_EMBEDDER is "
                "none; set an embedder, or no Weaviate"
            )
        return None
    if config.weaviate_url is None:
        return PgVectors(db)
    from learnloop_dataplane.vectors.weaviate import WeaviateTenants, WeaviateVectors

    try:
        url = urlsplit(config.weaviate_url)
        secure = url.scheme == "https"
        port = url.port or (443 if secure else 80)
    except ValueError as error:
        raise ConfigError(f"LEARNLOOP_WEAVIATE_URL={config.weaviate_url}: {error}; give http(s)://host:port") from None
    if not url.hostname:
        raise ConfigError(f"LEARNLOOP_WEAVIATE_URL={config.weaviate_url}: names no host; give http(s)://host:port")
    grpc_host, _, grpc_port = (config.weaviate_grpc or f"{url.hostname}:{GRPC_PORT}").rpartition(":")
    key = config.weaviate_key.get_secret_value() if config.weaviate_key else None
    tenants = WeaviateTenants(url.hostname, port, grpc_host, int(grpc_port), secure=secure, key=key)
    return WeaviateVectors(db, tenants, embedder.name, config.exact_up_to)
