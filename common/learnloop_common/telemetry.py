"""Telemetry: logs as one JSON object a line, and spans by OpenTelemetry."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TextIO
from urllib.parse import urlsplit

from learnloop_common.untrusted_text import shown

Style = Literal["text", "json"]
FORMAT_VARIABLE = "LEARNLOOP_LOG_FORMAT"
LONGEST = 16_384
"""Characters of a message or of an error; what is longer is cut."""
_ABOUT: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@contextmanager
def about(**what: str) -> Iterator[None]:
    """Lines logged within say this too: object, revision, trace_id."""
    token = _ABOUT.set({**(_ABOUT.get() or {}), **what})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def tell(**what: str) -> None:
    """Lines from here on say this too, to the end of the `about` around it."""
    _ABOUT.set({**(_ABOUT.get() or {}), **what})


def trace_id(*parts: str) -> str:
    """32 hexadecimal digits that a thing always has, such as those of an object's UID."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


def trace_of(traceparent: str) -> str:
    """The trace id of a `traceparent` header (W3C Trace Context, section 3.2); "" where it is none."""
    result = _TRACEPARENT.fullmatch(traceparent)
    return result[1] if result else ""


class JsonLines(logging.Formatter):
    """at (RFC 3339, UTC), level, logger, message; object, revision, trace_id, error where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _utc(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage()[:LONGEST], **(_ABOUT.get() or {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)[-LONGEST:]
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """A line for people. Control signs are shown, lines of an error are indented: no caller's text forges one."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _utc(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record)).replace("\n", "\n  ")


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def set_up(level: str = "INFO", style: Style | None = None, text: str = TEXT, stream: TextIO | None = None) -> None:
    """The root logger writes lines of this style, by default the environment's. `text`: for people."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if (style or style_of(os.environ)) == "json" else TextLines(text))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def style_of(environ: Mapping[str, str]) -> Style:
    """Value of LEARNLOOP_LOG_FORMAT; text where it is not set.

    Raises:
        ValueError: it is neither text nor json.
    """
    match environ.get(FORMAT_VARIABLE) or "text":
        case "text":
            return "text"
        case "json":
            return "json"
        case other:
            raise ValueError(f"{FORMAT_VARIABLE}={other!r}: set it to text or json")


if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator

SCHEMA_URL = "https://opentelemetry.io/schemas/1.38.0"

SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"
NAMESPACE = "k8s.namespace.name"

PIPELINE_NAME = "cicd.pipeline.name"
PIPELINE_RUN = "cicd.pipeline.run.id"
PIPELINE_RESULT = "cicd.pipeline.result"
SUCCESS, FAILURE, CANCELLED = "success", "failure", "cancellation"
AGENT = "gen_ai.agent.name"

OBJECT = "learnloop.object"
ATTEMPT = "learnloop.training.attempt"
DECISION = "learnloop.decision"
STEPS = "learnloop.training.steps"
REVISION = "learnloop.model.revision"
WEIGHT = "learnloop.rollout.weight"

BATCH_MILLISECONDS = 200
"""Longest wait of a span for others. A process that is killed loses this much; the SDK's own default is 5,000."""


def tracer_provider(
    service_name: str,
    endpoint: str,
    id_generator: IdGenerator | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    attributes: Mapping[str, str] | None = None,
) -> TracerProvider:
    """A provider whose spans are sent in batches from a thread of its own; `shutdown()` flushes it.

    Headers, certificates and timeouts that are not given here come from the OTEL_EXPORTER_OTLP_* environment.

    Args:
        endpoint: address of a collector, such as http://collector:4318; /v1/traces is added.
        id_generator: for ids derived from what a span is about; random by default.
        attributes: more attributes of the resource, such as its namespace.

    Raises:
        ValueError: the endpoint is not an HTTP URL.
    """
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"endpoint={endpoint!r}: set http:// or https:// and a host, e.g. http://collector:4318")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({**(attributes or {}), SERVICE_NAME: service_name}, SCHEMA_URL)
    provider = TracerProvider(resource=resource, id_generator=id_generator)
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", headers=dict(headers) if headers else None)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=BATCH_MILLISECONDS))
    return provider
