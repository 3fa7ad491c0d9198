"""A step of a trace as plain data, with ids that anybody who knows the object derives again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from learnloop_common.telemetry.json_logs import trace_id

__all__ = ["Link", "Span", "SpanEvaluation", "span_id", "trace_id"]
Attributes = Mapping[str, str | int | float | bool]


def span_id(trace: str, *parts: str) -> str:
    """16 hexadecimal digits that a step of this trace always has."""
    return hashlib.sha256("/".join((trace, *parts)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Link:
    """Another trace that this one came from; `why` in one word."""

    trace: str
    span: str
    why: str


@dataclass(frozen=True, slots=True)
class SpanEvaluation:
    """A judgement about what a span stands for."""

    name: str
    passed: bool
    why: str
    at: datetime
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """One step that has ended. `parent`: "" for the root of its trace; `failed`: why, or ""."""

    trace: str
    id: str
    name: str
    began: datetime
    ended: datetime
    parent: str = ""
    attributes: Attributes = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    evaluations: tuple[SpanEvaluation, ...] = ()
    failed: str = ""
