"""Recall: an exact scan of one agent's narrow rows, four signals z-scored over all of them, and summed.

No approximate index: a global one under `WHERE agent_id` has a recall@10 of 0.04 with 100 agents, and up to about
20,000 memories per agent the exact scan is faster anyway. The plan is part of the answer, so that it can change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import orjson
from pgvector import HalfVector

from learnloop_memory.memory.embedder import Embedder
from learnloop_memory.memory.store import MemoryType
from learnloop_memory.memory.text import terms
from learnloop_memory.store.database import Database

MAX_QUERY_TERMS = 64
RECENCY_HALF_LIFE_DAYS = 7.0

# ts_rank over an OR of the query's words (an AND, as plainto_tsquery makes it, has a recall of 0.09).
# MATERIALIZED: on a table without statistics yet the planner otherwise works each of them out again for every row
# (measured with 1,000 memories: 91 ms instead of 4).
# A signal without spread says nothing: its z is 0. NaN is the distance to a text without words.
_RECALL = """
WITH query AS MATERIALIZED (SELECT $4::halfvec AS embedding, array_to_string($5::text[], ' | ')::tsquery AS words),
signals AS MATERIALIZED (
    SELECT v.memory_id, v.importance,
        coalesce(nullif(1 - (v.embedding <=> query.embedding), 'NaN'), 0) AS vector,
        ts_rank(v.lexemes, query.words, 1)::float8 AS lexical,
        exp(-ln(2) * extract(epoch FROM now() - v.created_at)::float8 / (86400 * $6::float8)) AS recency
    FROM memory_vec v, query
    WHERE v.namespace = $1 AND v.agent_id = $2 AND v.memory_type = ANY($3::text[]) AND v.embedder = $7
),
spread AS MATERIALIZED (
    SELECT avg(vector) AS vector_mean, nullif(stddev_pop(vector), 0) AS vector_std,
        avg(lexical) AS lexical_mean, nullif(stddev_pop(lexical), 0) AS lexical_std,
        avg(recency) AS recency_mean, nullif(stddev_pop(recency), 0) AS recency_std,
        avg(importance) AS importance_mean, nullif(stddev_pop(importance), 0) AS importance_std
    FROM signals
),
scored AS (
    SELECT memory_id, coalesce((vector - vector_mean) / vector_std, 0) AS vector,
        coalesce((lexical - lexical_mean) / lexical_std, 0) AS lexical,
        coalesce((recency - recency_mean) / recency_std, 0) AS recency,
        coalesce((importance - importance_mean) / importance_std, 0) AS importance
    FROM signals, spread
),
best AS MATERIALIZED (
    SELECT *, $8::float8 * vector + $9::float8 * lexical + $10::float8 * recency + $11::float8 * importance AS total
    FROM scored ORDER BY total DESC, memory_id LIMIT $12
)
SELECT m.id, m.memory_type, m.content, m.importance AS stored_importance, m.created_at, best.*
FROM best JOIN agent_memories m ON m.namespace = $1 AND m.id = best.memory_id
ORDER BY best.total DESC, best.memory_id
"""


@dataclass(frozen=True)
class Weights:
    """How much each z-scored signal counts; a learned ranker would only choose other numbers."""

    vector: float = 1.0
    lexical: float = 1.0
    recency: float = 0.25
    importance: float = 0.25


@dataclass(frozen=True)
class Hit:
    """One recalled memory with the z-score of each signal and their weighted sum."""

    id: UUID
    memory_type: str
    content: Any
    importance: float
    created_at: str
    score: float
    signals: dict[str, float]


@dataclass(frozen=True)
class Recall:
    """The answer to one recall. `plan` says how it was found."""

    retrieval_id: UUID
    plan: str
    memories: list[Hit]


STATIC = Weights()


async def recall(
    db: Database,
    namespace: str,
    agent: str,
    text: str,
    *,
    k: int,
    memory_types: Sequence[MemoryType],
    embedder: Embedder,
    weights: Weights = STATIC,
) -> Recall:
    """The k best memories of one agent for a text.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    # Words are letters and digits only, so quoting them makes each one a plain lexeme of a tsquery.
    query_terms = [f"'{term}'" for term in terms(text)[:MAX_QUERY_TERMS]]
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(
            _RECALL,
            namespace,
            agent,
            list(memory_types),
            HalfVector(embedder.embed(text)),
            query_terms,
            RECENCY_HALF_LIFE_DAYS,
            embedder.name,
            weights.vector,
            weights.lexical,
            weights.recency,
            weights.importance,
            k,
        )
    return Recall(uuid4(), "exact", [_hit(row) for row in rows])


def _hit(row: Any) -> Hit:
    signals = {name: round(row[name], 6) for name in ("vector", "lexical", "recency", "importance")}
    return Hit(
        row["id"],
        row["memory_type"],
        orjson.loads(row["content"]),
        row["stored_importance"],
        row["created_at"].isoformat(),
        round(row["total"], 6),
        signals,
    )
