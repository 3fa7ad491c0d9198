"""Tables of what was erased, as sqlmodel classes: enough to know it again, and nothing more."""

from datetime import datetime

from sqlalchemy import Index, Text
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
    """An erased episode, by the SHA-256 of its namespace and id: it stays erased whatever time it claims to be from."""

    __tablename__ = "erased_trajectories"
    __table_args__ = (Index("ix_erased_subject", "namespace", "subject"),)
    namespace: str = _column(Text, key=True)
    digest: str = _column(Text, key=True)
    subject: str = _column(Text)
