"""Consolidation of one agent's memory: duplicates and echoes end, episodes become facts and procedures."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from learnloop_common.redaction.fields import safe_origin
from learnloop_dataplane.audit.chain import note_memories
from learnloop_dataplane.lifecycle.compared_apart import compared
from learnloop_dataplane.lifecycle.comparison import HELD, SHOWN, page, rows_of
from learnloop_dataplane.lifecycle.distillation import Distiller, Episode, episode
from learnloop_dataplane.lifecycle.duplicates import Effort, Superfluous
from learnloop_dataplane.lifecycle.rests import Rests
from learnloop_dataplane.lifecycle.retirement import retire
from learnloop_dataplane.memories.memory_store import NewMemory, insert
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.redaction import redact_text
from learnloop_dataplane.text.analysis import Analyzer

MOST = 20_000  # memories looked at in one pass, the newest
EXAMPLES = 20
READ_AT_ONCE = 100  # rows: what unpacks a thousand of them holds all recalls up for four milliseconds
_HELD = """
SELECT m.id, m.memory_type, m.text, m.content, m.importance, m.pinned, m.source, m.origin,
    extract(epoch FROM m.created_at)::float8 AS created, coalesce(u.helped - u.hurt, 0) AS earned,
    CASE WHEN m.valid_from > now() THEN extract(epoch FROM m.valid_from)::float8 ELSE 0 END AS begins,
    extract(epoch FROM m.ends_at)::float8 AS ends, coalesce(m.provenance->>'user', '') AS about
FROM agent_memories m LEFT JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND m.state = 'active' AND m.ends_at > now()
ORDER BY m.created_at DESC, m.id DESC LIMIT $3
"""
# Each memory once, with all the times: of the 5,000 latest showings most are of the same few hundred.
_SHOWN = """
SELECT m.id, m.text, m.content, l.times,
    extract(epoch FROM m.ends_at)::float8 AS ends, coalesce(m.provenance->>'user', '') AS about FROM (
    SELECT id, array_agg(extract(epoch FROM created_at)::float8) AS times FROM (
        SELECT created_at, unnest(memory_ids) AS id FROM recall_log
        WHERE namespace = $1 AND agent_id = $2 ORDER BY created_at DESC LIMIT 5000) s GROUP BY id) l
JOIN agent_memories m ON m.namespace = $1 AND m.id = l.id AND m.state = 'active'
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 7))"
_TRY = "SELECT pg_try_advisory_xact_lock(hashtextextended($1 || '/' || $2, 7))"
_DONE = """
INSERT INTO memory_consolidations (namespace, agent_id, consolidated_at) VALUES ($1, $2, now())
ON CONFLICT (namespace, agent_id) DO UPDATE SET consolidated_at = excluded.consolidated_at
"""


@dataclass(frozen=True)
class Consolidated:
    """What a pass did, or would do: counts, the share of junk it found, and the first twenty of it.

    Attributes:
        left: memories that were not compared, because too many read almost like them.
    """

    agent_id: str
    looked_at: int
    duplicates: int
    echoes: int
    left: int
    distilled: int
    junk_ratio: float
    dry_run: bool
    examples: list[dict[str, Any]]


async def consolidate(
    db: Database, namespace: str, agent: str, distiller: Distiller, analyzer: Analyzer, *, dry_run: bool = False
) -> Consolidated:
    """One pass. Doing it twice changes nothing more; two at once wait for one another, and requests for neither.

    Raises:
        Unavailable: nothing was changed.
    """
    async with db.tenant(namespace) as connection:
        await connection.execute(_LOCK, namespace, agent)
        return await _pass(connection, namespace, agent, distiller, analyzer, dry_run=dry_run)


async def pass_over(
    connection: Any, namespace: str, agent: str, distiller: Distiller, analyzer: Analyzer
) -> Consolidated | None:
    """One pass within the caller's transaction that keeps out of everybody's way; None: one is under way."""
    if not await connection.fetchval(_TRY, namespace, agent):
        return None
    return await _pass(connection, namespace, agent, distiller, analyzer, rests=True)


async def _pass(
    connection: Any,
    namespace: str,
    agent: str,
    distiller: Distiller,
    analyzer: Analyzer,
    *,
    dry_run: bool = False,
    rests: bool = False,
) -> Consolidated:
    looked_at, held = await _read(connection, HELD, _HELD, namespace, agent, MOST)
    _, shown = await _read(connection, SHOWN, _SHOWN, namespace, agent)
    # Some seconds for a large agent, and as long as a distiller is given that asks a model.
    junk, left = await compared(held, shown, looked_at, rests=rests)
    made, told = await asyncio.to_thread(_rest, held, {str(entry.id) for entry in junk}, Rests() if rests else None)
    facts = _new(made, await distiller.distil(agent, told))
    if not dry_run:
        await _apply(connection, namespace, agent, junk)
        await note_memories(connection, namespace, "memory.consolidated", agent, [entry.id for entry in junk])
        await _replace(connection, namespace, agent, made, facts, analyzer)
        await connection.execute(_DONE, namespace, agent)
    kinds = Counter(entry.kind for entry in junk)
    return Consolidated(
        agent_id=agent,
        looked_at=looked_at,
        duplicates=kinds["duplicate"],
        echoes=kinds["echo"],
        left=left,
        distilled=len(facts),
        junk_ratio=round(len(junk) / max(looked_at, 1), 4),
        dry_run=dry_run,
        examples=[{"id": entry.id, "says_the_same_as": entry.by, "kind": entry.kind} for entry in junk[:EXAMPLES]],
    )


async def _read(connection: Any, columns: Sequence[str], query: str, *arguments: Any) -> tuple[int, list[bytes]]:
    """How many rows there are, and their pages."""
    rows, pages = 0, []
    cursor = await connection.cursor(query, *arguments)
    while found := await cursor.fetch(READ_AT_ONCE):
        rows += len(found)
        pages.append(page(found, columns))
    return rows, pages


def _rest(
    held: list[bytes], gone: set[str], rest: Callable[[], None] | None
) -> tuple[list[dict[str, Any]], list[Episode]]:
    """What consolidation made before, and the episodes. What ends now is no evidence either: told again it would count
    twice, and the next pass would not find it."""
    made: list[dict[str, Any]] = []
    episodes: list[Episode] = []
    for row in Effort(rest=rest).over(rows_of(held, HELD)):
        if row["id"] in gone:
            continue
        if row["source"] == "consolidation":
            made.append(row)
        if row["memory_type"] == "episodic" and (
            told := episode(row["id"], orjson.loads(row["content"]), row["about"])
        ):
            episodes.append(told)
    return made, episodes


def _new(made: list[dict[str, Any]], facts: list[NewMemory]) -> list[NewMemory]:
    """Those that say something else than what is held."""
    for fact in facts:
        fact.origin = safe_origin(fact.origin, redact_text)  # as it is stored: by it the old version is found
    known: dict[str, list[Any]] = defaultdict(list)
    for row in made:
        known[row["origin"]].append(orjson.loads(row["content"]))
    # Of one subject there are two where a quarantined one was released: a new one then takes the place of both.
    return [fact for fact in facts if known[fact.origin] != [fact.content]]


async def _apply(connection: Any, namespace: str, agent: str, junk: list[Superfluous]) -> None:
    for kind in ("duplicate", "echo"):
        chosen = [entry for entry in junk if entry.kind == kind]
        await retire(connection, namespace, agent, [entry.id for entry in chosen], kind, [entry.by for entry in chosen])


async def _replace(
    connection: Any,
    namespace: str,
    agent: str,
    made: list[dict[str, Any]],
    facts: list[NewMemory],
    analyzer: Analyzer,
) -> None:
    """The new version of a fact takes the place of the old one, which `as_of` still finds."""
    new = {fact.origin: fact.id for fact in facts}
    old = [row for row in made if row["origin"] in new]
    await insert(connection, namespace, facts, analyzer)
    await retire(
        connection,
        namespace,
        agent,
        [UUID(row["id"]) for row in old],
        "superseded",
        [new[row["origin"]] for row in old],
    )
