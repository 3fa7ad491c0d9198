"""Tables of what was erased, enough to know it again and nothing more; and of the keys that an erasure destroys."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, LargeBinary, Text, Uuid
from sqlmodel import SQLModel

from learnloop_dataplane.postgres.column_types import column as _column
from learnloop_dataplane.postgres.column_types import time_column as _time


class Erasure(SQLModel, table=True):
    """What came from a subject (`user/user:<hash>`, `agent/<name>`) and ended up to `erased_at` never comes back."""

    __tablename__ = "erasures"
    namespace: str = _column(Text, key=True)
    subject: str = _column(Text, key=True)
    erased_at: datetime = _time(default="clock_timestamp()")


class ErasedTrajectory(SQLModel, table=True):
    """An erased episode, by a digest of its namespace and id: it stays erased whatever time it claims to be from."""

    __tablename__ = "erased_trajectories"
    __table_args__ = (Index("ix_erased_subject", "namespace", "subject"),)
    namespace: str = _column(Text, key=True)
    digest: str = _column(Text, key=True)
    subject: str = _column(Text)


class DataKeyRow(SQLModel, table=True):
    """A key that seals what belongs to the namespace, to an agent, or to a person whom an agent served; wrapped."""

    __tablename__ = "data_keys"
    __table_args__ = (Index("ix_data_keys_id", "namespace", "key_id", unique=True),)
    namespace: str = _column(Text, key=True)
    agent_id: str = _column(Text, key=True)
    user_hash: str = _column(Text, key=True)
    key_id: UUID = _column(Uuid)
    wrapping_key: str = _column(Text)
    wrapped: bytes = _column(LargeBinary)
    created_at: datetime = _time(default="clock_timestamp()")
