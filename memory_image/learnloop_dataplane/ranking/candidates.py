"""What a recall ranks where nothing is kept between recalls: one agent's memories as columns, read in one pass.

PostgreSQL scans the agent's narrow rows, takes the inner products and hands back packed columns; numpy does the rest.
This serves questions about the past, agents too large for the cache (see `agent_cache`), and those with an index.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from learnloop_dataplane.postgres.memory_absences import away
from learnloop_dataplane.ranking.columns import Columns, Floats
from learnloop_dataplane.ranking.memory_types import CODES, MemoryType
from learnloop_dataplane.ranking.outcome_credit import UTILITY
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.text.tokenizer import pack, term_hash, thread_of

LIGHT = """
count(*)::int AS n,
string_agg(uuid_send(v.memory_id), '') AS ids,
string_agg(v.terms, '') AS terms,
string_agg(int4send(length(v.terms)), '') AS lengths,
string_agg(float8send(extract(epoch FROM v.created_at)::float8), '') AS created,
string_agg(float4send(v.importance) || float4send(v.utility), '') AS worth,
string_agg(int8send(v.thread), '') AS threads
"""
_COSINES = """
string_agg(CASE WHEN v.embedder = $5 THEN float4send((-(v.embedding <#> $4))::real) ELSE '\\x7fc00000'::bytea END, '')
    AS vector
"""
# `visible_from` and `visible_to` hold every end a memory can have: expired, retired, no longer true. $6 is the instant;
# none is the database's own now, so that another machine's clock cannot hide what was just stored.
_VISIBLE = """v.namespace = s.namespace AND v.agent_id {agents} AND v.memory_type = ANY($3::smallint[])
    AND v.visible_from <= coalesce($6, now()) AND v.visible_to > coalesce($6, now())"""
# Naming the namespace inside the statement saves the two round trips of a transaction. The LATERAL aggregate depends
# on the row that set_config returns, so it cannot run before; if it did, row-level security would show it nothing.
SCOPE = "FROM set_config('app.namespace', $1, true) AS s(namespace)"
MOST_PENDING = 2000
# Memories that the indexer has not come to yet, newest first. With places for the agents, the instant, and what tells
# their sessions apart.
PENDING_OF = f"""
(SELECT array_agg(ROW(m.id, m.text, m.created_at, m.importance, m.session_id, m.memory_type, coalesce({UTILITY}, 0),
        {{whose}}) ORDER BY m.created_at DESC) FROM (
    SELECT p.memory_id FROM memory_pending p
    WHERE p.namespace = s.namespace AND p.agent_id {{agents}} LIMIT {MOST_PENDING}) p
 JOIN agent_memories m ON m.namespace = s.namespace AND m.id = p.memory_id
 LEFT JOIN memory_use u ON u.namespace = s.namespace AND u.memory_id = p.memory_id
 WHERE greatest(m.created_at, m.valid_from) <= coalesce({{at}}, now())
    AND m.ends_at > coalesce({{at}}, now()){{here}}) AS pending
"""
# What the agent's ranker has learned comes along: a look-up by key costs less than knowing when a copy went stale.
_RANKER = "(SELECT r.state FROM memory_rankers r WHERE r.namespace = s.namespace AND r.agent_id = {agent}) AS ranker"
ONE, MANY = "= $2", "= ANY($2::text[])"  # whose memories: those of one agent, or of several
# The same session's name at two agents means two sessions: in a recall of several its number is mixed with this.
_OF_AGENT = "hashtextextended({table}.agent_id, 0)"
PENDING = PENDING_OF.replace("{agents}", ONE).replace("{whose}", "0::bigint")
RANKER = _RANKER.format(agent="$2")


def _exact(agents: str = ONE, ranker: str = "$2", columns: str = LIGHT) -> tuple[str, str]:
    """The statement that reads everything now, and the one that reads what there was at the instant $6: without what
    was away then and came back.

    Args:
        agents: how $2 says whose memories.
        ranker: where the name of the agent is whose ranker comes along.
    """

    whose = "0::bigint" if agents == ONE else _OF_AGENT.format(table="m")

    def read(pending: str, rows: str) -> str:
        rest = f"{_RANKER.format(agent=ranker)}, {PENDING_OF.format(agents=agents, at='$6', here=pending, whose=whose)}"
        where = _VISIBLE.format(agents=agents) + rows
        return f"SELECT x.*, {rest} {SCOPE}, LATERAL (SELECT {columns}, {_COSINES} FROM memory_vec v WHERE {where}) x"

    absent = (f" AND NOT {away('s.namespace', name, '$6')}" for name in ("m.id", "v.memory_id"))
    return read("", ""), read(*absent)


EXACT, EXACT_THEN = _exact()
_CHOSEN = " AND v.memory_id = ANY({ids}::uuid[])) x"
CHOSEN = EXACT.removesuffix(") x") + _CHOSEN.format(ids="$7")
# Of several agents, $7 being the one that asks.
_THREADS = f"CASE v.thread WHEN 0 THEN 0 ELSE v.thread # {_OF_AGENT.format(table='v')} END"
SHARED, SHARED_THEN = _exact(MANY, "$7", LIGHT.replace("v.thread", _THREADS))
SHARED_CHOSEN = SHARED.removesuffix(") x") + _CHOSEN.format(ids="$8::text")


@dataclass(frozen=True)
class Query:
    """What is looked for: its terms, its vector (None while the embedder is away), the instant (None: now), and what
    the embedder is trusted with."""

    text: str
    tokens: list[str]
    vector: Any
    embedder: str
    at: datetime | None
    types: tuple[MemoryType, ...]
    trust: float = 1.0

    def hashes(self, most: int = 256) -> NDArray[np.uint32]:
        """The distinct terms, at most 256: of a longer text those at its beginning and those at its end."""
        words = list(dict.fromkeys(self.tokens))
        if len(words) > most:
            words = words[: most // 2] + words[-most // 2 :]
        return np.array([term_hash(word) for word in words], dtype=np.uint32)

    def kinds(self) -> tuple[int, ...]:
        """The codes of the types asked for."""
        return tuple(CODES[name] for name in self.types)

    def arguments(self, namespace: str, agent: str) -> tuple[Any, ...]:
        """$1 to $6 of the statements here. Without a vector no embedder's name matches."""
        absent = self.vector is None
        return (
            namespace,
            agent,
            list(self.kinds()),
            HalfVector([0.0] if absent else self.vector),
            None if absent else self.embedder,
            self.at,
        )


@dataclass(frozen=True)
class Pending:
    """A memory that is stored and not indexed yet.

    Attributes:
        whose: what its session's number is mixed with; 0 where all are of one agent.
    """

    id: UUID
    text: str
    terms: list[str]
    created: float
    importance: float
    session: str | None
    memory_type: str
    utility: float
    whose: int = 0


def pending_of(row: Any, types: tuple[MemoryType, ...], analyzer: Analyzer) -> list[Pending]:
    """Those of an answer that are of one of these types, newest first."""
    rows = row["pending"] or ()
    return [Pending(r[0], r[1], analyzer.terms(r[1]), r[2].timestamp(), *r[3:8]) for r in rows if r[5] in types]


def light(row: Any) -> Columns:
    """The columns of an answer to a statement with LIGHT."""
    worth = read(row["worth"], ">f4").reshape(-1, 2)
    return Columns(
        ids=np.frombuffer(row["ids"] or b"", np.uint8).reshape(-1, 16),
        words=np.frombuffer(row["terms"] or b"", "<u4").astype(np.uint32),
        lengths=(read(row["lengths"], ">i4") // 4).astype(np.int32),
        created=read(row["created"], ">f8").astype(np.float64),
        importance=worth[:, 0].astype(np.float32),
        utility=worth[:, 1].astype(np.float32),
        threads=read(row["threads"], ">i8").astype(np.int64),
    )


def light_of_pending(pending: list[Pending]) -> Columns:
    """The same of memories that only exist as texts yet."""
    packed = [np.frombuffer(pack(memory.terms), "<u4") for memory in pending]
    return Columns(
        ids=np.frombuffer(b"".join(memory.id.bytes for memory in pending), np.uint8).reshape(-1, 16),
        words=np.concatenate([np.zeros(0, np.uint32), *packed]).astype(np.uint32),
        lengths=np.array([len(item) for item in packed], np.int32),
        created=np.array([memory.created for memory in pending], np.float64),
        importance=np.array([memory.importance for memory in pending], np.float32),
        utility=np.array([memory.utility for memory in pending], np.float32),
        threads=np.array([_thread(memory) for memory in pending], np.int64),
    )


def _thread(memory: Pending) -> int:
    thread = thread_of(memory.session)
    return thread and thread ^ memory.whose


def cosines_of(row: Any) -> Floats:
    """Cosines with the query, NaN for rows without a vector of its embedder, from an answer to these statements."""
    return read(row["vector"], ">f4").astype(np.float64)


def read(column: bytes | None, kind: str) -> NDArray[Any]:
    """A packed column."""
    return np.frombuffer(column or b"", kind)
