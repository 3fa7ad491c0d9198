"""What a recall ranks: one agent's memories as columns, read in one round trip and one pass.

PostgreSQL scans the agent's narrow rows, takes the inner products and hands back packed columns (1,000 memories:
0.5 ms); numpy does the rest. Nothing is cached between recalls, so nothing can be stale or another tenant's.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from learnloop_memory.memory.kinds import CODES, MemoryType
from learnloop_memory.memory.text import pack, term_hash, thread_of, words

Floats = NDArray[np.float64]

# `visible_from` and `visible_to` hold every end a memory can have: expired, retired, no longer true. $6 is the instant;
# none is the database's own now, so that another machine's clock cannot hide what was just stored.
_COLUMNS = """
count(*)::int AS n,
string_agg(uuid_send(v.memory_id), '') AS ids,
string_agg(CASE WHEN v.embedder = $5 THEN float4send((-(v.embedding <#> $4))::real) ELSE '\\x7fc00000'::bytea END, '')
    AS vector,
string_agg(v.terms, '') AS terms,
string_agg(int4send(length(v.terms)), '') AS lengths,
string_agg(float8send(extract(epoch FROM v.created_at)::float8), '') AS created,
string_agg(float4send(v.importance) || float4send(v.utility), '') AS worth,
string_agg(int8send(v.thread), '') AS threads
"""
VISIBLE = """v.namespace = s.namespace AND v.agent_id = $2 AND v.memory_type = ANY($3::smallint[])
    AND v.visible_from <= coalesce($6, now()) AND v.visible_to > coalesce($6, now())"""
# Naming the namespace inside the statement saves the two round trips of a transaction. The LATERAL aggregate depends
# on the row that set_config returns, so it cannot run before; if it did, row-level security would show it nothing.
SCOPE = "FROM set_config('app.namespace', $1, true) AS s(namespace)"
_PENDING = """
(SELECT array_agg(ROW(m.id, m.text, m.created_at, m.importance, m.session_id)
        ORDER BY m.created_at DESC) FROM (
    SELECT p.memory_id FROM memory_pending p
    WHERE p.namespace = s.namespace AND p.agent_id = $2 LIMIT 2000) p
 JOIN agent_memories m ON m.namespace = s.namespace AND m.id = p.memory_id
 WHERE m.memory_type = ANY($7::text[]) AND greatest(m.created_at, m.valid_from) <= coalesce($6, now())
    AND m.ends_at > coalesce($6, now())) AS pending
"""
# What the agent's ranker has learned comes along: a look-up by key costs less than knowing when a copy went stale.
_RANKER = "(SELECT r.state FROM memory_rankers r WHERE r.namespace = s.namespace AND r.agent_id = $2) AS ranker"
EXACT = f"SELECT x.*, {_RANKER}, {_PENDING} {SCOPE}, LATERAL (SELECT {_COLUMNS} FROM memory_vec v WHERE {VISIBLE}) x"
CHOSEN = f"""SELECT x.*, {_RANKER}, {_PENDING} {SCOPE},
LATERAL (SELECT {_COLUMNS} FROM memory_vec v WHERE {VISIBLE} AND v.memory_id = ANY($8::uuid[])) x"""


@dataclass(frozen=True)
class Candidates:
    """Columns over the same n memories.

    Attributes:
        ids: bytes [n, 16].
        vector: cosine with the query, float64 [n]; NaN where the memory has no vector of this embedder (yet).
        terms, owners: words' hashes uint32 [m] and the memory each belongs to, intp [m].
        counts: how often that word occurs in that memory, float64 [m].
        created: seconds since 1970, float64 [n].
        importance, utility: float64 [n].
        threads: int64 [n], 0 where a memory belongs to no session.
    """

    ids: NDArray[np.uint8]
    vector: Floats
    terms: NDArray[np.uint32]
    owners: NDArray[np.intp]
    counts: Floats
    created: Floats
    importance: Floats
    utility: Floats
    threads: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.created)

    def uuid(self, index: int) -> UUID:
        """The id of one memory."""
        return UUID(bytes=self.ids[index].tobytes())


@dataclass(frozen=True)
class Query:
    """What is looked for: its words, its vector (None while the embedder is away), the instant (None: now)."""

    text: str
    tokens: list[str]
    vector: Any
    embedder: str
    at: datetime | None
    types: tuple[MemoryType, ...]

    def hashes(self, most: int = 64) -> NDArray[np.uint32]:
        """The distinct words, at most 64."""
        return np.array([term_hash(word) for word in dict.fromkeys(self.tokens)][:most], dtype=np.uint32)

    def arguments(self, namespace: str, agent: str) -> tuple[Any, ...]:
        """$1 to $7 of the statements here. Without a vector no embedder's name matches."""
        absent = self.vector is None
        return (
            namespace,
            agent,
            [CODES[name] for name in self.types],
            HalfVector([0.0] if absent else self.vector),
            None if absent else self.embedder,
            self.at,
            list(self.types),
        )


def unpack(row: Any, vectors: dict[UUID, float] | None = None) -> Candidates:
    """The columns of one answer, with the memories still waiting for the indexer behind the indexed ones.

    Args:
        row: an answer to EXACT or CHOSEN.
        vectors: cosines of pending memories, where they were worked out on the way.
    """
    pending = row["pending"] or ()
    waiting = [pack(words(item[1])) for item in pending]
    n = row["n"] + len(pending)
    ids = np.frombuffer((row["ids"] or b"") + b"".join(item[0].bytes for item in pending), np.uint8).reshape(n, 16)
    lengths = np.concatenate([_read(row["lengths"], ">i4"), [len(item) for item in waiting]]).astype(np.intp) // 4
    packed = np.frombuffer((row["terms"] or b"") + b"".join(waiting), "<u4")
    worth = _read(row["worth"], ">f4").reshape(-1, 2)
    cosines = [(vectors or {}).get(item[0], np.nan) for item in pending]
    return Candidates(
        ids=ids,
        vector=np.concatenate([_read(row["vector"], ">f4"), cosines]),
        terms=(packed >> 8).astype(np.uint32),
        owners=np.repeat(np.arange(n), lengths),
        counts=(packed & 255).astype(np.float64),
        created=np.concatenate([_read(row["created"], ">f8"), [item[2].timestamp() for item in pending]]),
        importance=np.concatenate([worth[:, 0], [item[3] for item in pending]]),
        utility=np.concatenate([worth[:, 1], np.zeros(len(pending))]),
        threads=np.concatenate([_read(row["threads"], ">i8"), [thread_of(item[4]) for item in pending]]).astype(
            np.int64
        ),
    )


def pending_texts(row: Any) -> list[tuple[UUID, str]]:
    """Ids and texts of the memories that have no vector yet."""
    return [(item[0], item[1]) for item in row["pending"] or ()]


def _read(column: bytes | None, kind: str) -> NDArray[Any]:
    values = np.frombuffer(column or b"", kind)
    return values.astype(np.int64 if kind == ">i8" else np.float64)
