"""What gate suites reported and how it was judged, as sqlmodel classes."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import SQLModel

from learnloop_dataplane.postgres.column_types import column as _column
from learnloop_dataplane.postgres.column_types import time_column as _time


class GateReportRow(SQLModel, table=True):
    """The report of one suite's Job; `report` NULL: its bytes are none, and `problem` says why."""

    __tablename__ = "gate_reports"
    __table_args__ = (Index("ix_gate_reports_deployment", "namespace", "model_deployment", "received_at"),)
    namespace: str = _column(Text, key=True)
    job: str = _column(Text, key=True)
    model_deployment: str = _column(Text)
    sha256: str = _column(Text)
    report: dict[str, Any] | None = _column(JSONB, null=True)
    problem: str = _column(Text)
    received_at: datetime = _time(default="clock_timestamp()")


class GateVerdictRow(SQLModel, table=True):
    """How the gates of one candidate ended; one that is tried again begins anew."""

    __tablename__ = "gate_verdicts"
    namespace: str = _column(Text, key=True)
    model_deployment: str = _column(Text, key=True)
    revision: str = _column(Text, key=True)
    started_at: datetime = _time(key=True)
    verdict: dict[str, Any] = _column(JSONB)
    judged_at: datetime = _time(default="clock_timestamp()")
