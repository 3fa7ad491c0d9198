"""Tables of events and of the people behind them, as sqlmodel classes."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Field, SQLModel

from learnloop_dataplane.postgres.experience_tables import column, sequence_column, time_column


class OutboxEvent(SQLModel, table=True):
    """An event as it is (or, without NATS, would be) published. `published_at` NULL means: still to be."""

    __tablename__ = "event_outbox"
    __table_args__ = (
        Index("ix_outbox_unpublished", "namespace", "created_at", postgresql_where=text("published_at IS NULL")),
        Index("ix_outbox_subject", "namespace", "subject", "created_at"),
        # For retention alone: see RewardHistory.
        Index("ix_outbox_created", "created_at", postgresql_using="brin"),
    )
    namespace: str = column(Text, key=True)
    message_id: str = column(Text, key=True)
    subject: str = column(Text)
    payload: str = column(Text)
    created_at: datetime = time_column(default="clock_timestamp()")
    published_at: datetime | None = time_column(null=True)


class NotificationRow(SQLModel, table=True):
    """One message; neither delivered nor closed: it is still to be sent, at `next_at`."""

    __tablename__ = "notifications"
    __table_args__ = (
        Index(
            "ix_notifications_due",
            "namespace",
            "next_at",
            postgresql_where=text("delivered_at IS NULL AND closed_at IS NULL"),
        ),
    )
    namespace: str = column(Text, key=True)
    message_id: str = column(Text, key=True)
    event: str = column(Text)
    payload: str = column(Text)
    created_at: datetime = time_column(default="clock_timestamp()")
    next_at: datetime = time_column(default="clock_timestamp()")
    attempts: int = column(Integer, default="0")
    delivered_at: datetime | None = time_column(null=True)
    closed_at: datetime | None = time_column(null=True)
    problem: str | None = column(Text, null=True)


class ServedModelRow(SQLModel, table=True):
    """The newest events of one ModelDeployment, as they were published; they outlive the outbox."""

    __tablename__ = "served_models"
    namespace: str = column(Text, key=True)
    model_deployment: str = column(Text, key=True)
    serving: str | None = column(Text, null=True)
    rolled_back: str | None = column(Text, null=True)
    published_at: datetime = time_column(default="now()")


class UserKey(SQLModel, table=True):
    """The key of one namespace's user hashes; made once, it never leaves the database and its clients."""

    __tablename__ = "user_keys"
    namespace: str = column(Text, key=True)
    key: bytes = column(LargeBinary)


class UserOptOut(SQLModel, table=True):
    """A person, by hash, who opted out: nothing about them is stored."""

    __tablename__ = "user_opt_outs"
    namespace: str = column(Text, key=True)
    user_hash: str = column(Text, key=True)
    opted_out_at: datetime = time_column(default="now()")


class UserFeedbackRow(SQLModel, table=True):
    """One person's opinion about one episode, -1 to 1. `joined`: it is part of the episode's outcome values."""

    __tablename__ = "user_feedback"
    __table_args__ = (
        Index("ix_feedback_unjoined", "namespace", "trajectory_id", postgresql_where=text("NOT joined")),
        Index("ix_feedback_user", "namespace", "user_hash"),
        Index("ix_feedback_given", "namespace", "given_at"),
    )
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    user_hash: str = column(Text, key=True)
    value: float = column(Double)
    given_at: datetime = time_column(default="now()")
    joined: bool = column(Boolean, default="false")


class PreferenceRow(SQLModel, table=True):
    """A preference between two answers, as wire.Preference; `sessions`: the conversations of both."""

    __tablename__ = "preferences"
    __table_args__ = (
        Index("ix_preferences_agent", "namespace", "agent_id", "seq"),
        Index("ix_preferences_user", "namespace", "user_hash"),
        Index("ix_preferences_given", "namespace", "given_at"),
    )
    namespace: str = column(Text, key=True)
    preference_id: str = column(Text, key=True)
    seq: int = sequence_column()
    agent_id: str = column(Text)
    user_hash: str | None = column(Text, null=True)
    sessions: list[str] = column(ARRAY(Text))
    body: dict[str, Any] = column(JSONB)
    given_at: datetime = time_column(default="now()")


class WarehouseErasure(SQLModel, table=True):
    """A deletion that waits for the warehouse: episodes with this `user_hash`, `agent_id` or `trajectory_id`."""

    __tablename__ = "warehouse_erasures"
    namespace: str = column(Text, key=True)
    id: int = sequence_column(key=True)
    attribute: str = column(Text)
    value: str = column(Text)
    requested_at: datetime = time_column(default="clock_timestamp()")
    tried_at: datetime | None = time_column(null=True)


class AuditPending(SQLModel, table=True):
    """A record that is committed with the change it tells of, and waits for its place in the chain.

    Writing one takes no lock that another writer wants; only the sealer, one at a time for each namespace, orders them.
    """

    __tablename__ = "audit_pending"
    namespace: str = column(Text, key=True)
    id: int = sequence_column(key=True)
    at: datetime = time_column(default="clock_timestamp()")
    actor: str = column(Text)
    action: str = column(Text)
    subject: str = column(Text)
    outcome: str = column(Text, default="'done'")
    detail: dict[str, Any] = column(JSONB, default="'{}'")


class AuditRecord(SQLModel, table=True):
    """One link: `hash` is the SHA-256 of the hash before it and of this record's canonical JSON (see audit.record)."""

    __tablename__ = "audit_log"
    namespace: str = column(Text, key=True)
    seq: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    at: datetime = time_column()
    actor: str = column(Text)
    action: str = column(Text)
    subject: str = column(Text)
    outcome: str = column(Text)
    detail: dict[str, Any] = column(JSONB)
    previous: bytes = column(LargeBinary)
    hash: bytes = column(LargeBinary)


class Erasure(SQLModel, table=True):
    """Episodes of a subject (`user/user:<hash>`, `agent/<name>`) that ended up to `erased_at` never come back."""

    __tablename__ = "erasures"
    namespace: str = column(Text, key=True)
    subject: str = column(Text, key=True)
    erased_at: datetime = time_column(default="clock_timestamp()")


class ErasedTrajectory(SQLModel, table=True):
    """An erased episode, by a digest of its namespace and id: it stays erased whatever time it claims to be from."""

    __tablename__ = "erased_trajectories"
    __table_args__ = (Index("ix_erased_subject", "namespace", "subject"),)
    namespace: str = column(Text, key=True)
    digest: str = column(Text, key=True)
    subject: str = column(Text)


class DataKeyRow(SQLModel, table=True):
    """The wrapped key that seals a namespace's steps, artifacts and checkpoints."""

    __tablename__ = "data_keys"
    namespace: str = column(Text, key=True)
    key_id: UUID = column(Uuid)
    wrapping_key: str = column(Text)
    wrapped: bytes = column(LargeBinary)
    created_at: datetime = time_column(default="clock_timestamp()")


class GateReportRow(SQLModel, table=True):
    """The report of one suite's Job; `report` NULL: its bytes are none, and `problem` says why."""

    __tablename__ = "gate_reports"
    __table_args__ = (Index("ix_gate_reports_deployment", "namespace", "model_deployment", "received_at"),)
    namespace: str = column(Text, key=True)
    job: str = column(Text, key=True)
    model_deployment: str = column(Text)
    sha256: str = column(Text)
    report: dict[str, Any] | None = column(JSONB(none_as_null=True), null=True)
    problem: str = column(Text)
    received_at: datetime = time_column(default="clock_timestamp()")


class GateVerdictRow(SQLModel, table=True):
    """How the gates of one candidate ended; one that is tried again starts over."""

    __tablename__ = "gate_verdicts"
    namespace: str = column(Text, key=True)
    model_deployment: str = column(Text, key=True)
    revision: str = column(Text, key=True)
    started_at: datetime = time_column(key=True)
    verdict: dict[str, Any] = column(JSONB)
    judged_at: datetime = time_column(default="clock_timestamp()")
