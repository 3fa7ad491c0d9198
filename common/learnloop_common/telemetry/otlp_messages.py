"""Spans as OTLP's protobuf messages (OpenTelemetry protocol 1.x). Imported only where traces are sent."""

from collections.abc import Sequence
from datetime import datetime

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

from learnloop_common.telemetry import conventions as named
from learnloop_common.telemetry.spans import Attributes, Span, SpanEvaluation

SAMPLED = 1
LONGEST = 1024
"""Characters of a value; what is longer is cut."""


def trace_request(spans: Sequence[Span], resource: Attributes) -> bytes:
    """Body of a POST to /v1/traces."""
    scope = ScopeSpans(scope=_scope(), spans=[_span(span) for span in spans], schema_url=named.SCHEMA_URL)
    return _bytes(
        ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=_whose(resource), scope_spans=[scope])])
    )


def log_request(spans: Sequence[Span], resource: Attributes) -> bytes:
    """Body of a POST to /v1/logs: the judgements about these spans as events; b"" where there are none."""
    records = [_event(span, item) for span in spans for item in span.evaluations]
    if not records:
        return b""
    scope = ScopeLogs(scope=_scope(), log_records=records, schema_url=named.SCHEMA_URL)
    return _bytes(ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=_whose(resource), scope_logs=[scope])]))


def _span(span: Span) -> Message:
    return Message(
        trace_id=bytes.fromhex(span.trace),
        span_id=bytes.fromhex(span.id),
        parent_span_id=bytes.fromhex(span.parent),
        flags=SAMPLED,
        name=span.name,
        kind=Message.SPAN_KIND_INTERNAL if span.parent else Message.SPAN_KIND_SERVER,
        start_time_unix_nano=_nanoseconds(span.began),
        end_time_unix_nano=_nanoseconds(max(span.began, span.ended)),
        attributes=_pairs(span.attributes),
        links=[
            Message.Link(
                trace_id=bytes.fromhex(link.trace),
                span_id=bytes.fromhex(link.span),
                attributes=_pairs({named.LINK: link.why}),
            )
            for link in span.links
        ],
        status=Status(code=Status.STATUS_CODE_ERROR, message=span.failed[:LONGEST]) if span.failed else None,
    )


def _event(span: Span, item: SpanEvaluation) -> LogRecord:
    told: dict[str, str | int | float | bool] = {
        named.EVALUATION_NAME: item.name,
        named.EVALUATION_LABEL: named.PASS if item.passed else named.FAIL,
        named.EVALUATION_WHY: item.why,
    }
    if item.score is not None:
        told[named.EVALUATION_SCORE] = item.score
    return LogRecord(
        time_unix_nano=_nanoseconds(item.at),
        observed_time_unix_nano=_nanoseconds(item.at),
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        event_name=named.EVALUATION,
        attributes=_pairs(told),
        flags=SAMPLED,
        trace_id=bytes.fromhex(span.trace),
        span_id=bytes.fromhex(span.id),
    )


def _scope() -> InstrumentationScope:
    return InstrumentationScope(name="learnloop")


def _whose(resource: Attributes) -> Resource:
    return Resource(attributes=_pairs(resource))


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: str | int | float | bool) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(string_value=value[:LONGEST])


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000


def _bytes(message: ExportTraceServiceRequest | ExportLogsServiceRequest) -> bytes:
    return bytes(message.SerializeToString())
