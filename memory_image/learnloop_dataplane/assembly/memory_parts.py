"""Memories: written, indexed, recalled, learned from, kept within budgets, consolidated."""

import logging
import time
from pathlib import Path

from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.assembly.shared_parts import SharedParts, Step
from learnloop_dataplane.concurrency.admission_queue import Turns
from learnloop_dataplane.concurrency.exclusive_work import OneEach
from learnloop_dataplane.config import Config
from learnloop_dataplane.embedding.factory import open_embedder
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.lifecycle.budget_enforcement import BudgetKeeper
from learnloop_dataplane.lifecycle.budget_file import ToldBudgets
from learnloop_dataplane.lifecycle.distillation import CountingDistiller, Distiller
from learnloop_dataplane.lifecycle.memory_rewrites import HEAVY_AT_ONCE, MemoryRewrites
from learnloop_dataplane.lifecycle.scheduled_consolidation import Routine
from learnloop_dataplane.memories.episode_summaries import EpisodeMemories
from learnloop_dataplane.memories.grouped_writes import Writer
from learnloop_dataplane.memories.indexer import Indexer
from learnloop_dataplane.memories.indexing_schedule import IndexPace
from learnloop_dataplane.memories.memory_writes import MemoryWrites
from learnloop_dataplane.ranking.result_order import Ask, Recall
from learnloop_dataplane.recall.cache_warming import warm
from learnloop_dataplane.recall.cached_agents import Reader
from learnloop_dataplane.recall.echo_gate import RecentlyShown
from learnloop_dataplane.recall.large_agents import SCANNED_UP_TO, BigAgents
from learnloop_dataplane.recall.memory_groups import Groups
from learnloop_dataplane.recall.recall import Recaller
from learnloop_dataplane.recall.recall_feedback import Feedback
from learnloop_dataplane.recall.recall_log import FLUSH_SECONDS, RecallLog
from learnloop_dataplane.recall.vector_sync import Following
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.vectors.factory import open_vectors

log = logging.getLogger(__name__)
CONSOLIDATION_SECONDS = 60.0  # between two looks for agents whose turn it is
RECALLS_AT_ONCE = 8  # enough to keep PostgreSQL busy while this process ranks


class MemoryParts:
    """What routes and background work need of memories."""

    def __init__(self, shared: SharedParts) -> None:
        config, db = shared.config, shared.db
        self._shared = shared
        analyzer = Analyzer(config.language)
        embedder_key = config.embedder_key.get_secret_value() if config.embedder_key else None
        self.embedder = open_embedder(
            config.embedder, config.embedder_dimensions, embedder_key, analyzer, seconds=config.embedder_seconds
        )
        self.indexer = Indexer(db, analyzer, self.embedder)
        self.indexing = IndexPace(lambda namespace: shared.background.attempt(self.indexer.turn, namespace))
        limit = MemoryBudget(memories=config.memories_per_agent, bytes=config.memory_bytes_per_agent)
        told = ToldBudgets(Path(config.agent_budgets_file) if config.agent_budgets_file else None, shared.metrics)
        self.budgets = BudgetKeeper(db, shared.metrics, limit, told)

        self.vectors = open_vectors(config, db, self.embedder)
        self.reader = Reader(db, self.embedder, config.cache_mib * 2**20)
        above = config.exact_up_to or max(self.reader.exact_up_to, SCANNED_UP_TO)
        stored_above = config.nearest_up_to if config.weaviate_url is None else above
        self.large_agents = BigAgents(db, self.vectors, above=above, stored_above=stored_above)
        self.following = Following(self.large_agents, self.vectors, shared.metrics)
        self.recall_log = RecallLog(db)
        self.shown = RecentlyShown()
        self.recalls = Recaller(
            db,
            analyzer,
            self.embedder,
            self.recall_log,
            self.shown,
            self.large_agents,
            self.reader,
            self.indexer,
            Groups(db, told),
            embed_seconds=config.embedder_recall_ms / 1000,
        )
        self.turns = Turns(at_once=RECALLS_AT_ONCE, patience=config.recall_wait_ms / 1000)
        self.feedback = Feedback(db, self.recall_log, shared.metrics.agents.judged)

        writer = Writer(db, analyzer, self.embedder, self.indexing.stored)
        self.writes = MemoryWrites(db, shared.users, writer, self.shown, self.indexing, self.budgets.changed)
        distiller = _distiller(config)
        consolidations = OneEach("consolidation", HEAVY_AT_ONCE)
        waiting, grew = self.indexing.stored, self.budgets.changed
        self.rewrites = MemoryRewrites(db, distiller, consolidations, waiting, grew)
        every = config.consolidate_seconds
        self.routine = Routine(db, distiller, shared.metrics, every, consolidations, waiting)
        self.episodes = EpisodeMemories(db, shared.step_cipher)

    def start(self) -> None:
        """Begins the background work."""
        shared, config = self._shared, self._shared.config
        again, sweep, check = shared.background.repeat, config.sweep_seconds, config.index_check_seconds
        again(self.indexing.run, "indexer")
        shared.in_turns("large agents", self.large_agents.run, every=check)
        self.budgets.work = shared.in_turns("budgets", self.budgets.keep, every=check)
        if every := config.consolidate_seconds:
            shared.in_turns("consolidation", self.routine.run, every=min(every, CONSOLIDATION_SECONDS))
        again(self.following.look, "vector store", pause=sweep)
        shared.in_turns("vectors", self.following.run, every=sweep)
        shared.in_turns("filling of vectors", self.following.fill, every=sweep)
        again(self.recall_log.write, "recall log", pause=FLUSH_SECONDS)
        shared.background.once(self._warm(), "warming up")

    async def close(self) -> None:
        """Writes down what was recalled; the background work has ended by then."""
        await self.recall_log.flush()
        await self.vectors.close()

    async def recall(self, namespace: str, ask: Ask) -> Recall:
        """As `Recaller.recall`, timed."""
        started = time.perf_counter()
        found = await self.recalls.recall(namespace, ask)
        self._shared.metrics.recall(time.perf_counter() - started)
        return found

    def steps(self) -> list[Step]:
        """What is done in a namespace where something arrived, in this order."""
        return [self.feedback.run, self.episodes.run, self.indexer.reterm, self.indexer.reembed]

    async def _warm(self) -> None:
        await self._shared.db.ready.wait()
        try:
            await warm(self._shared.db, self.reader)
        except Unavailable as error:
            log.info("agents' memories are read when they are asked: %s", error)


def _distiller(config: Config) -> Distiller:
    url, _, model = config.distiller.partition("#")
    if not model:
        return CountingDistiller()
    # What talks by HTTP is imported where a setting has it talk.
    from learnloop_dataplane.lifecycle.model_distiller import MOST_ANSWER_BYTES, ModelDistiller
    from learnloop_dataplane.model_servers.openai_api import ModelServer, chat_probe

    key = config.distiller_key.get_secret_value() if config.distiller_key else None
    server = ModelServer(url, chat_probe(model), key, seconds=config.distiller_seconds, most_bytes=MOST_ANSWER_BYTES)
    return ModelDistiller(server, model, seconds=2 * config.distiller_seconds)
