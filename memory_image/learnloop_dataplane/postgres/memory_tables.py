"""The tables of the memories, as sqlmodel classes.

`agent_memories` holds a memory as it was stored, with both of its times: `created_at`..`retired_at` is when the agent
had it (transaction time; when it was away in between is in `memory_absences`), `valid_from`..`valid_to` when it was
true of the world. Nothing is overwritten, so `as_of`, snapshots and rollbacks are only other instants to look at.
`memory_vec` is what recall reads.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import REAL, BigInteger, Boolean, Double, Index, Integer, LargeBinary, SmallInteger, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import SQLModel

from learnloop_dataplane.postgres.column_types import column, time_column, transaction_column


class AgentMemory(SQLModel, table=True):
    """A memory as it was stored. `source` is what kind of writer made it, `origin` names the thing it came from."""

    __tablename__ = "agent_memories"
    __table_args__ = (
        Index("ix_memories_agent", "namespace", "agent_id", "created_at", "id"),
        Index("ix_memories_derived", "namespace", "source", "created_at", postgresql_where=text("source <> 'api'")),
        Index(
            "uq_memories_idempotency",
            "namespace",
            "agent_id",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index("ix_memories_origin", "namespace", "agent_id", "origin", postgresql_where=text("origin <> ''")),
        Index("ix_memories_ends", "namespace", "ends_at", postgresql_where=text("ends_at < 'infinity'")),
    )
    namespace: str = column(Text, key=True)
    id: UUID = column(Uuid, key=True)
    agent_id: str = column(Text)
    memory_type: str = column(Text)
    content: dict[str, Any] = column(JSONB)
    text: str = column(Text)
    importance: float = column(Double, default="0.5")
    source: str = column(Text)
    origin: str = column(Text, default="''")
    provenance: dict[str, Any] | None = column(JSONB, null=True)
    session_id: str | None = column(Text, null=True)
    idempotency_key: str | None = column(Text, null=True)
    pinned: bool = column(Boolean, default="false")
    state: str = column(Text, default="'active'")
    superseded_by: UUID | None = column(Uuid, null=True)
    created_at: datetime = time_column(default="now()")
    retired_at: datetime | None = time_column(null=True)
    valid_from: datetime | None = time_column(null=True)
    valid_to: datetime | None = time_column(null=True)
    expires_at: datetime | None = time_column(null=True)
    # The first instant at which recall no longer sees it: the earliest of the three ends.
    ends_at: datetime = time_column(default="'infinity'")


class MemoryVector(SQLModel, table=True):
    """The narrow row an exact per-agent scan reads (0.5 ms for 1,000; 5.6 ms over the wide table).

    `terms` is packed for numpy: little-endian uint32, 24 bits of a word's hash and 8 bits of how often it occurs.
    `created_at` is what recency goes by: a copy's is that of what it was made from.
    `analyzer` says what cut the text into them.
    `embedding` is stored PLAIN (never out of line) and has any number of dimensions; `embedder` says whose it is.
    `changed` is kept by a trigger: whoever keeps a copy finds by it what was committed after the copy was made.
    """

    __tablename__ = "memory_vec"
    __table_args__ = (Index("ix_memory_vec_changed", "namespace", "agent_id", "changed"),)
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)
    memory_type: int = column(SmallInteger)
    embedder: str | None = column(Text, null=True)
    importance: float = column(REAL)
    utility: float = column(REAL, default="0")
    thread: int = column(BigInteger, default="0")
    created_at: datetime = time_column()
    visible_from: datetime = time_column()
    visible_to: datetime = time_column(default="'infinity'")
    terms: bytes = column(LargeBinary)
    analyzer: str | None = column(Text, null=True)
    embedding: list[float] | None = column(HALFVEC(), null=True)
    changed: str = transaction_column()


class MemoryGone(SQLModel, table=True):
    """Agents some of whose memories were deleted, and by which transaction: copies of these are read again."""

    __tablename__ = "memory_gone"
    __table_args__ = (Index("ix_memory_gone_at", "namespace", "gone_at"),)
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    changed: str = transaction_column(key=True)
    gone_at: datetime = time_column(default="now()")


class MemoryCopy(SQLModel, table=True):
    """Which agents a vector store beside PostgreSQL holds: in which of its collections, and up to which snapshot."""

    __tablename__ = "memory_copies"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    collection: str = column(Text)
    snapshot: str = column(Text)
    followed_at: datetime = time_column(default="now()")


class MemoryWord(SQLModel, table=True):
    """Which memories of a large agent have which word (24 bits of its hash). Equality alone finds them, which an index
    may answer before row-level security looks at a row; a text search may not, and reads every text of the agent."""

    __tablename__ = "memory_words"
    __table_args__ = (Index("ix_memory_words", "namespace", "agent_id", "word"),)
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)
    word: int = column(Integer, key=True)


class MemoryPending(SQLModel, table=True):
    """Stored but not yet in `memory_vec`. Recall reads these rows too, so a memory is found as soon as it is stored."""

    __tablename__ = "memory_pending"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)


class MemoryUse(SQLModel, table=True):
    """How often a memory was recalled, and what came of it; written behind the recalls, in batches."""

    __tablename__ = "memory_use"
    namespace: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)
    access_count: int = column(BigInteger, default="0")
    last_accessed: datetime | None = time_column(null=True)
    helped: float = column(Double, default="0")
    hurt: float = column(Double, default="0")


class MemoryAbsence(SQLModel, table=True):
    """A time in which an agent did not have a memory that came back: from `since` up to, but not at, `until`. While one
    lasts, `agent_memories.retired_at` is where it began."""

    __tablename__ = "memory_absences"
    namespace: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)
    since: datetime = time_column(key=True)
    until: datetime = time_column()


class RecallRecord(SQLModel, table=True):
    """One recall: what was shown, why, and with which probability. `features` is float32 [hits, signals]."""

    __tablename__ = "recall_log"
    __table_args__ = (
        Index("ix_recall_log_created", "created_at", postgresql_using="brin"),  # see RewardHistory
        Index("ix_recall_log_agent", "namespace", "agent_id", "created_at"),
    )
    namespace: str = column(Text, key=True)
    retrieval_id: UUID = column(Uuid, key=True)
    agent_id: str = column(Text)
    created_at: datetime = time_column(default="now()")
    ranker: str = column(Text)
    shown: int = column(SmallInteger)
    memory_ids: list[UUID] = column(ARRAY(Uuid))
    features: bytes = column(LargeBinary)
    propensities: list[float] = column(ARRAY(REAL))
    reward: float | None = column(Double, null=True)
    settled_at: datetime | None = time_column(null=True)


class MemoryRanker(SQLModel, table=True):
    """What one agent's ranker has learned so far, and how it did in the shadow of the static one."""

    __tablename__ = "memory_rankers"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    state: dict[str, Any] = column(JSONB)
    active: bool = column(Boolean, default="false")
    updated_at: datetime = time_column(default="now()")


class MemorySnapshot(SQLModel, table=True):
    """A name for an instant of an agent's memory. Retention keeps what a snapshot can still see.

    What feedback had taught by then is copied, because it has no history: `ranker` ({}: nothing) and, element by
    element, what each of `lesson_ids` had helped and hurt. NULL: taken before that was kept.
    """

    __tablename__ = "memory_snapshots"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    name: str = column(Text, key=True)
    taken_at: datetime = time_column(default="now()")
    created_at: datetime = time_column(default="now()")
    ranker: dict[str, Any] | None = column(JSONB, null=True)
    lesson_ids: list[UUID] | None = column(ARRAY(Uuid), null=True)
    helped: list[float] | None = column(ARRAY(Double), null=True)
    hurt: list[float] | None = column(ARRAY(Double), null=True)


class MemoryBudgetRow(SQLModel, table=True):
    """What one agent may keep (`own`, a wire.MemoryBudget; NULL: only the service's limit holds) and what it keeps."""

    __tablename__ = "memory_budgets"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    own: dict[str, Any] | None = column(JSONB, null=True)
    memories: int | None = column(BigInteger, null=True)
    bytes: int | None = column(BigInteger, null=True)
    pinned: int | None = column(BigInteger, null=True)
    pinned_above: list[str] = column(ARRAY(Text), default="'{}'")
    forgotten: int = column(BigInteger, default="0")
    last_forgotten: int = column(BigInteger, default="0")
    last_forgotten_at: datetime | None = time_column(null=True)


class MemoryConsolidation(SQLModel, table=True):
    """When an agent's memory was last consolidated, by itself or because somebody asked."""

    __tablename__ = "memory_consolidations"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    consolidated_at: datetime = time_column()
