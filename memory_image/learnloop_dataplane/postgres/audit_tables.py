"""Tables of the audit chain, as sqlmodel classes. What is in the chain is only ever added to: see `rls.APPEND_ONLY`."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Identity, LargeBinary, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel

from learnloop_dataplane.postgres.column_types import column as _column
from learnloop_dataplane.postgres.column_types import time_column as _time


class AuditPending(SQLModel, table=True):
    """A record that is committed with the change it tells of, and waits for its place in the chain.

    Writing one takes no lock that another writer wants; only the sealer, one at a time for each namespace, orders them.
    """

    __tablename__ = "audit_pending"
    namespace: str = _column(Text, key=True)
    id: int = Field(sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    at: datetime = _time(default="clock_timestamp()")
    actor: str = _column(Text)
    action: str = _column(Text)
    subject: str = _column(Text)
    outcome: str = _column(Text, default="'done'")
    detail: dict[str, Any] = _column(JSONB, default="'{}'")


class AuditRecord(SQLModel, table=True):
    """One link: `hash` is the SHA-256 of the hash before it and of this record's canonical JSON (see audit.record)."""

    __tablename__ = "audit_log"
    namespace: str = _column(Text, key=True)
    seq: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    at: datetime = _time()
    actor: str = _column(Text)
    action: str = _column(Text)
    subject: str = _column(Text)
    outcome: str = _column(Text)
    detail: dict[str, Any] = _column(JSONB)
    previous: bytes = _column(LargeBinary)
    hash: bytes = _column(LargeBinary)


class AuditCheckpoint(SQLModel, table=True):
    """A signature over the hash of record `seq`, and with it over every record up to there."""

    __tablename__ = "audit_checkpoints"
    namespace: str = _column(Text, key=True)
    seq: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    at: datetime = _time()
    hash: bytes = _column(LargeBinary)
    public_key: bytes = _column(LargeBinary)
    signature: bytes = _column(LargeBinary)
