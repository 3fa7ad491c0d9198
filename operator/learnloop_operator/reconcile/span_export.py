"""Sends spans by opentelemetry-sdk. Imported only where traces are sent."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from opentelemetry import trace
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from learnloop_common.telemetry import tracing as named
from learnloop_common.telemetry.tracing import tracer_provider
from learnloop_operator.core.traces import Attributes, Span, SpanEvaluation

LONGEST = 1024
"""Characters of a value."""


class DerivedIds(IdGenerator):
    """Ids of the span that is begun next."""

    trace = span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class SpanExport:
    """Records spans that have ended; a thread of the SDK sends them in batches."""

    def __init__(self, endpoint: str, attributes: Mapping[str, str], headers: Mapping[str, str] | None = None) -> None:
        self._ids = DerivedIds()
        self._provider = tracer_provider(
            "learnloop-operator", endpoint, self._ids, headers=headers, attributes=attributes
        )
        self._tracer = self._provider.get_tracer("learnloop", schema_url=named.SCHEMA_URL)

    def send(self, spans: Sequence[Span]) -> None:
        """Queue spans in this order; never waits."""
        for span in spans:
            self._send(span)

    def close(self) -> None:
        """Sends the rest, as long as the collector answers."""
        self._provider.shutdown()

    def _send(self, span: Span) -> None:
        self._ids.trace, self._ids.span = int(span.trace, 16), int(span.id, 16)
        parent = trace.set_span_in_context(NonRecordingSpan(_context(span.trace, span.parent))) if span.parent else None
        record = self._tracer.start_span(
            span.name,
            context=parent,
            kind=SpanKind.INTERNAL if span.parent else SpanKind.SERVER,
            attributes=_cut(span.attributes),
            links=[trace.Link(_context(link.trace, link.span), {named.LINK: link.why}) for link in span.links],
            start_time=_nanoseconds(span.began),
        )
        for item in span.evaluations:
            record.add_event(named.EVALUATION, _evaluation(item), _nanoseconds(item.at))
        if span.failed:
            record.set_status(Status(StatusCode.ERROR, span.failed[:LONGEST]))
        record.end(_nanoseconds(max(span.began, span.ended)))


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _evaluation(item: SpanEvaluation) -> dict[str, str | int | float | bool]:
    result = {
        named.EVALUATION_NAME: item.name,
        named.EVALUATION_LABEL: named.PASS if item.passed else named.FAIL,
        named.EVALUATION_WHY: item.why,
    }
    return {**_cut(result), **({} if item.score is None else {named.EVALUATION_SCORE: item.score})}


def _cut(attributes: Attributes) -> dict[str, str | int | float | bool]:
    return {key: value[:LONGEST] if isinstance(value, str) else value for key, value in attributes.items()}


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
