"""Consolidation of an agent's memory: duplicates and echoes end, episodes become facts and procedures.

It runs on request, and by schedule for each agent that has enough new memories; one process at a time does an agent.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import orjson

from learnloop_common.redaction.redactor import safe_origin
from learnloop_dataplane import errors, privacy, stems
from learnloop_dataplane.audit.chain import note, note_memories
from learnloop_dataplane.concurrency.limits import OneEach
from learnloop_dataplane.lifecycle import distillation, quarantine
from learnloop_dataplane.lifecycle.duplicates import Comparison, Item, RecalledMemory
from learnloop_dataplane.memories.memory_store import NewMemory, insert
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.recall import memory_groups, memory_types, recall

log = logging.getLogger(__name__)
MOST = 20_000  # memories of one pass, the newest
EXAMPLES = 20
READ_AT_ONCE = 100  # rows: unpacking a thousand delays all recalls by four milliseconds
AGENTS_AT_ONCE = 2  # in a process
ENOUGH = 20  # new memories of an agent: fewer hardly change anything, and each pass reads all memories
MOST_AGENTS = 100  # of a namespace in one turn, so that other namespaces get theirs
PAUSE_SECONDS = 0.5  # between two agents
_HELD = """
SELECT m.id, m.memory_type, m.text, m.content, m.importance, m.pinned, m.source, m.origin, m.kind, m.speaker,
    extract(epoch FROM m.created_at)::float8 AS created, coalesce(u.helped - u.hurt, 0) AS earned,
    CASE WHEN m.valid_from > now() THEN extract(epoch FROM m.valid_from)::float8 ELSE 0 END AS begins,
    extract(epoch FROM m.ends_at)::float8 AS ends, coalesce(m.provenance->>'user', '') AS about,
    extract(epoch FROM coalesce(v.spoken_at, m.created_at))::float8 AS spoken_at, m.position
FROM agent_memories m LEFT JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
LEFT JOIN memory_index v ON v.namespace = m.namespace AND v.agent_id = m.agent_id AND v.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND m.state = 'active' AND m.ends_at > now()
ORDER BY m.created_at DESC, m.id DESC LIMIT $3
"""
# Each memory once, with all its times: the 5,000 latest results of recalls are mostly the same few hundred.
_RECALLED = """
SELECT m.id, m.text, m.content, l.times,
    extract(epoch FROM m.ends_at)::float8 AS ends, coalesce(m.provenance->>'user', '') AS about FROM (
    SELECT id, array_agg(extract(epoch FROM created_at)::float8 ORDER BY created_at) AS times FROM (
        SELECT created_at, unnest(memory_ids) AS id FROM recall_log
        WHERE namespace = $1 AND agent_id = $2 ORDER BY created_at DESC LIMIT 5000) s GROUP BY id) l
JOIN agent_memories m ON m.namespace = $1 AND m.id = l.id AND m.state = 'active'
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 7))"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1 || '/' || $2, 7))"
_DONE = """
INSERT INTO memory_consolidations (namespace, agent_id, consolidated_at) VALUES ($1, $2, now())
ON CONFLICT (namespace, agent_id) DO UPDATE SET consolidated_at = excluded.consolidated_at
"""
_DUE = f"""
WITH RECURSIVE {memory_groups.AGENTS}
SELECT k.agent_id FROM agents k
LEFT JOIN memory_consolidations c ON c.namespace = $1 AND c.agent_id = k.agent_id
WHERE k.agent_id IS NOT NULL AND ($4::text IS NULL OR k.agent_id = $4)
    AND coalesce(c.consolidated_at, '-infinity') <= now() - make_interval(secs => $2)
    AND $3 = (SELECT count(*) FROM (
        SELECT FROM agent_memories m
        WHERE m.namespace = $1 AND m.agent_id = k.agent_id AND m.created_at > coalesce(c.consolidated_at, '-infinity')
            AND m.state = 'active' AND m.source <> 'consolidation' AND m.memory_type <> 'working' LIMIT $3) new)
ORDER BY c.consolidated_at NULLS FIRST, k.agent_id
"""


@dataclass(frozen=True)
class Consolidated:
    """Result of a pass: counts, the share of junk, and the first twenty examples of it."""

    agent_id: str
    looked_at: int
    duplicates: int
    echoes: int
    distilled: int
    junk_ratio: float
    dry_run: bool
    examples: list[dict[str, Any]]


class Consolidation:
    """Passes over agents, one at a time for each and a few in a process.

    Args:
        distiller: makes facts and procedures of episodes.
        recall_log: what was recalled until now is in it before a pass looks for echoes.
        every: seconds between two scheduled passes over the same agent.
        stored: called with a namespace that has new memories.
    """

    def __init__(
        self,
        db: Database,
        distiller: distillation.CountingDistiller,
        analyzer: stems.Analyzer,
        metrics: Metrics,
        recall_log: recall.RecallLog,
        every: float,
        stored: Callable[[str], None],
    ) -> None:
        self._db = db
        self._distiller = distiller
        self._analyzer = analyzer
        self._metrics = metrics
        self._recall_log = recall_log
        self._every = every
        self._stored = stored
        self._turns = OneEach("consolidation", AGENTS_AT_ONCE)

    async def consolidate(self, namespace: str, agent: str, *, dry_run: bool) -> Consolidated:
        """One pass on request; repeating it changes nothing more.

        Raises:
            ApiError: 429, this agent is being consolidated, or the limit of agents is reached.
            Unavailable: nothing was changed.
        """
        with self._turns.turn(namespace, agent):
            await self._recall_log.flush()
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_LOCK, namespace, agent)
                done = await self._pass(connection, namespace, agent, dry_run=dry_run)
        self._stored(namespace)
        return done

    async def run(self, namespace: str) -> int:
        """Scheduled passes over the agents of a namespace that are due; returns how many this process did.

        Raises:
            Unavailable: the rest follows next time.
        """
        async with self._db.tenant(namespace) as connection:
            due = [row["agent_id"] for row in await connection.fetch(_DUE, namespace, self._every, ENOUGH, None)]
        passes = 0
        self._metrics.consolidations_due(namespace, len(due))
        for place, agent in enumerate(due[:MOST_AGENTS], 1):
            done = None
            try:
                with self._turns.turn(namespace, agent):
                    done = await self._scheduled(namespace, agent)
            except errors.ApiError as error:
                if error.status != 429:
                    raise
            if done is not None:
                passes += 1
                self._metrics.consolidated(namespace, done.duplicates + done.echoes, done.distilled)
                self._stored(namespace)
            self._metrics.consolidations_due(namespace, len(due) - place)
            await asyncio.sleep(PAUSE_SECONDS)
        return passes

    async def _scheduled(self, namespace: str, agent: str) -> Consolidated | None:
        """None where another process is at work, or has done this agent meanwhile."""
        started = time.monotonic()
        async with self._db.tenant(namespace) as connection:
            if not await connection.fetchval(_TRY_LOCK, namespace, agent):
                return None
            if not await connection.fetch(_DUE, namespace, self._every, ENOUGH, agent):
                return None
            done = await self._pass(connection, namespace, agent)
            counts = asdict(done)
            figures = {name: counts[name] for name in ("looked_at", "duplicates", "echoes", "distilled")}
            await note(connection, namespace, "memory.consolidation", f"agent/{agent}", figures)
        log.info("consolidated %s/%s in %.1f s: %s", namespace, agent, time.monotonic() - started, figures)
        return done

    async def _pass(self, connection: Any, namespace: str, agent: str, *, dry_run: bool = False) -> Consolidated:
        comparison = Comparison(map(_recalled, await connection.fetch(_RECALLED, namespace, agent)))
        looked_at, distilled_before, episodes = 0, list[dict[str, Any]](), list[distillation.Episode]()
        cursor = await connection.cursor(_HELD, namespace, agent, MOST)
        while rows := await cursor.fetch(READ_AT_ONCE):
            looked_at += len(rows)
            await asyncio.to_thread(_read, rows, comparison, distilled_before, episodes)
        junk = await asyncio.to_thread(comparison.junk)
        gone = {entry.id for entry in junk}
        # A memory that ends now does not count either.
        episodes = [each for each in episodes if UUID(each.id) not in gone]
        facts = _changed(distilled_before, await self._distiller.distil(agent, episodes))
        if not dry_run:
            for kind in ("echo", "duplicate"):  # an echo ends in favour of what may end as a duplicate itself
                pairs = [(entry.id, entry.by) for entry in junk if entry.kind == kind]
                await quarantine.retire(
                    connection, namespace, agent, [one for one, _ in pairs], kind, [by for _, by in pairs]
                )
            await note_memories(connection, namespace, "memory.consolidated", agent, list(gone))
            await self._replace(connection, namespace, agent, distilled_before, facts)
            await connection.execute(_DONE, namespace, agent)
        kinds = Counter(entry.kind for entry in junk)
        return Consolidated(
            agent_id=agent,
            looked_at=looked_at,
            duplicates=kinds["duplicate"],
            echoes=kinds["echo"],
            distilled=len(facts),
            junk_ratio=round(len(junk) / max(looked_at, 1), 4),
            dry_run=dry_run,
            examples=[{"id": entry.id, "says_the_same_as": entry.by, "kind": entry.kind} for entry in junk[:EXAMPLES]],
        )

    async def _replace(
        self, connection: Any, namespace: str, agent: str, before: list[dict[str, Any]], facts: list[NewMemory]
    ) -> None:
        """Replaces facts by their new versions; `as_of` still finds the old ones."""
        new = {fact.origin: fact.id for fact in facts}
        old = [row for row in before if row["origin"] in new]
        await insert(connection, namespace, facts, self._analyzer)
        ids, by = [row["id"] for row in old], [new[row["origin"]] for row in old]
        await quarantine.retire(connection, namespace, agent, ids, "superseded", by)


def _recalled(row: Any) -> RecalledMemory:
    return RecalledMemory(
        row["times"], _id(row), row["text"], row["ends"], row["about"], stems.details(orjson.loads(row["content"]))
    )


def _read(
    rows: Sequence[Any],
    comparison: Comparison,
    distilled_before: list[dict[str, Any]],
    episodes: list[distillation.Episode],
) -> None:
    """Takes from a page of rows what the rest of the pass needs, so that no text but that of episodes is kept."""
    items = []
    for row in rows:
        identity, content = _id(row), orjson.loads(row["content"])
        if memory_types.POLICIES[row["memory_type"]].consolidates:
            items.append(
                Item(
                    identity,
                    row["memory_type"],
                    row["text"],
                    row["created"],
                    standing=row["importance"] + row["earned"],
                    # Each episode is an event of its own, however alike two of them read.
                    fixed=row["pinned"] or row["source"] in ("consolidation", "episode"),
                    states=row["kind"] > 0,
                    place=(row["spoken_at"], row["position"]),
                    begins=row["begins"],
                    ends=row["ends"],
                    about=row["about"],
                    speaker=row["speaker"],
                    details=stems.details(content),
                )
            )
        if row["source"] == "consolidation":
            distilled_before.append({"id": identity, "origin": row["origin"], "content": content})
        if row["memory_type"] == "episodic" and (each := distillation.episode(str(identity), content, row["about"])):
            episodes.append(each)
    comparison.read(items)


def _id(row: Any) -> UUID:
    return UUID(bytes=row["id"].bytes)  # the driver's own class is slower to hash, and no JSON


def _changed(before: list[dict[str, Any]], facts: list[NewMemory]) -> list[NewMemory]:
    """The facts that differ from what is held."""
    for fact in facts:
        fact.origin = safe_origin(fact.origin, privacy.redact_text)  # as stored: the old version has this origin
    held: dict[str, list[Any]] = defaultdict(list)
    for row in before:
        held[row["origin"]].append(row["content"])
    # A subject has two where a quarantined one was released: a new one then replaces both.
    return [fact for fact in facts if held[fact.origin] != [fact.content]]
