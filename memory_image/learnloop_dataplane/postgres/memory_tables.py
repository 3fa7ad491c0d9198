"""The tables of the memories, as sqlmodel classes.

`agent_memories` holds a memory as it was stored, with both of its times: `created_at`..`retired_at` is when the agent
had it (transaction time), `valid_from`..`valid_to` when it was true of the world. Nothing is overwritten, so `as_of` is
only another instant to look at.
`memory_index` is what recall reads.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import REAL, BigInteger, Boolean, Double, Index, Integer, LargeBinary, SmallInteger, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Column, Computed, Field, SQLModel

from learnloop_dataplane.postgres.experience_tables import column, time_column

STANDING = 2  # the first of `recall.statements.Kind` that stands: a rule, or what ends one


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
        Index("ix_memories_superseded", "superseded_by", postgresql_where=text("superseded_by IS NOT NULL")),
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
    speaker: str = column(Text, default="''")
    position: int = column(BigInteger, default="0")  # within the session; memories of one position go by their age
    kind: int = column(SmallInteger, default="0")
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


class MemoryIndex(SQLModel, table=True):
    """The narrow row that recall reads, written with the memory.

    `terms` is packed for numpy: little-endian uint32, 24 bits of a stem's hash and 8 bits of how often it occurs;
    `analyzer` says what cut the text into them. `session` and `speaker` are hashes, `kind` is a `statements.Kind`.
    A distiller is asked for it from `kind_due` on, where that is set. `same` is a hash that copies share,
    `owner` one of agent, person and speaker: a withdrawal ends what has the same.
    `spoken_at` is when it was said first: a copy's is that of the original. `listed`: its stems are in `memory_words`,
    so recall reads it only where they are looked for. `about` has the roots of what may state or withdraw something.
    `embedding` has any number of dimensions, and `embedder` says
    whose it is; `next_…` hold the vectors of another embedder that is not in use yet, or no longer. `copied` is the
    collection of a vector store that has a vector of the row.
    """

    __tablename__ = "memory_index"
    __table_args__ = (
        Index(
            "ix_memory_index_spoken", "namespace", "agent_id", "listed", "session", "position", "spoken_at", "memory_id"
        ),
        Index("ix_memory_index_neighbours", "namespace", "agent_id", "session", "position", "spoken_at", "memory_id"),
        Index("ix_memory_index_kind_due", "namespace", "kind_due", postgresql_where=text("kind_due IS NOT NULL")),
        Index(
            "ix_memory_index_standing",
            "namespace",
            "agent_id",
            "spoken_at",
            postgresql_where=text(f"kind >= {STANDING}"),
        ),
    )
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)
    memory_type: int = column(SmallInteger)
    kind: int = column(SmallInteger, default="0")
    kind_due: datetime | None = time_column(null=True)
    speaker: int = column(BigInteger, default="0")
    person: bool = column(Boolean, default="true")
    same: int = column(BigInteger)
    owner: int = column(BigInteger, default="0")
    session: int = column(BigInteger, default="0")
    position: int = column(BigInteger, default="0")
    spoken_at: datetime = time_column()
    visible_from: datetime = time_column()
    visible_to: datetime = time_column(default="'infinity'")
    terms: bytes = column(LargeBinary)
    named: int = column(SmallInteger, default="0")  # how many of the terms, the first, name its speaker
    about: bytes = column(LargeBinary, default="''")
    analyzer: str = column(Text)
    outcome: float = column(REAL, default="0")
    listed: bool = column(Boolean, default="false")
    embedder: str | None = column(Text, null=True)
    embedding: list[float] | None = column(HALFVEC(), null=True)
    next_embedder: str | None = column(Text, null=True)
    next_embedding: list[float] | None = column(HALFVEC(), null=True)
    copied: str | None = column(Text, null=True)
    # Packing them once and not in each recall saves a third of PostgreSQL's time.
    packed: bytes = Field(
        sa_column=Column(
            LargeBinary,
            Computed(
                "int8send(same) || int8send(owner) || timestamptz_send(spoken_at) || int8send(speaker)"
                " || int2send(kind) || int2send(named)"
                " || int2send((CASE WHEN kind > 0 THEN length(about) / 4 ELSE 0 END)::int2) || boolsend(person)",
                persisted=True,
            ),
        )
    )


class MemoryEmbedder(SQLModel, table=True):
    """The embedder whose vectors answer in a namespace, the one before, and one that was refused: it finds less."""

    __tablename__ = "memory_embedders"
    namespace: str = column(Text, key=True)
    embedder: str = column(Text)
    refused: str | None = column(Text, null=True)
    before: str | None = column(Text, null=True)


class MemoryCopy(SQLModel, table=True):
    """An agent that a vector store next to PostgreSQL holds, in which collection, and when that was checked."""

    __tablename__ = "memory_copies"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    collection: str = column(Text)
    followed_at: datetime = time_column(default="now()")


class MemoryWord(SQLModel, table=True):
    """A stem (24 bits of its hash) of a memory of a large agent, and how many stems that has: short ones come first.

    Equality alone finds them, which an index may answer before row-level security looks at a row; a text search may
    not, and reads every text of the agent.
    """

    __tablename__ = "memory_words"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    word: int = column(Integer, key=True)
    stems: int = column(SmallInteger, key=True)
    memory_id: UUID = column(Uuid, key=True)


class MemoryWordCount(SQLModel, table=True):
    """How many memories of a large agent have a stem; under -1 how many memories there are, and under -2 how many stems
    they have together."""

    __tablename__ = "memory_word_counts"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    word: int = column(Integer, key=True)
    memories: int = column(BigInteger)


class MemoryUse(SQLModel, table=True):
    """How often a memory was recalled, and what came of it; written behind the recalls, in batches."""

    __tablename__ = "memory_use"
    namespace: str = column(Text, key=True)
    memory_id: UUID = column(Uuid, key=True)
    access_count: int = column(BigInteger, default="0")
    last_accessed: datetime | None = time_column(null=True)
    helped: float = column(Double, default="0")
    hurt: float = column(Double, default="0")


class RecallRecord(SQLModel, table=True):
    """One recall: what it answered, and the reward of the episode that asked."""

    __tablename__ = "recall_log"
    __table_args__ = (
        Index("ix_recall_log_created", "created_at", postgresql_using="brin"),  # see RewardHistory
        Index("ix_recall_log_agent", "namespace", "agent_id", "created_at"),
    )
    namespace: str = column(Text, key=True)
    retrieval_id: UUID = column(Uuid, key=True)
    agent_id: str = column(Text)
    created_at: datetime = time_column(default="now()")
    memory_ids: list[UUID] = column(ARRAY(Uuid))
    reward: float | None = column(Double, null=True)
    settled_at: datetime | None = time_column(null=True)


class RecallReward(SQLModel, table=True):
    """The usual reward of an agent's recalls: a mean in which older ones fade."""

    __tablename__ = "recall_rewards"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    mean: float = column(Double, default="0")
    spread: float = column(Double, default="0")
    judged: int = column(BigInteger, default="0")


class MemoryBudgetRow(SQLModel, table=True):
    """An agent's budget (`own`, a wire.MemoryBudget; NULL: only the service's limit holds) and what it keeps."""

    __tablename__ = "memory_budgets"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    own: dict[str, Any] | None = column(JSONB(none_as_null=True), null=True)
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
