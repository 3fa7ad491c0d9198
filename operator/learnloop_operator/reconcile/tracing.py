"""Traces by opentelemetry-sdk: a span for each decision about a training or rollout, and one for the whole at its end.

Imported only where traces are sent.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from learnloop_common import telemetry, telemetry as named
from learnloop_operator.core import conditions, counted_transitions, plan, times

PIPELINES = {"TrainingJob": "training", "ModelDeployment": "rollout"}
LONGEST = 1024
"""Characters of a value."""


class DerivedIds(RandomIdGenerator):
    """Ids of a trace's root, where `root` is set; random ones otherwise."""

    root: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return self.root.trace_id if self.root else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.root.span_id if self.root else super().generate_span_id()


class Tracer:
    """Records decisions that are on record in a status; a thread of the SDK sends them in batches."""

    def __init__(self, provider: TracerProvider, ids: DerivedIds) -> None:
        """`ids` must be the provider's generator."""
        self._provider, self._ids = provider, ids
        self._tracer = provider.get_tracer("learnloop", schema_url=named.SCHEMA_URL)

    def close(self) -> None:
        self._provider.shutdown()

    def decided(
        self,
        kind: str,
        body: plan.KubeObject,
        after: counted_transitions.Status,
        events: Sequence[plan.Notice],
        began: datetime,
        ended: datetime,
    ) -> None:
        """A pass over `body` wrote the status `after` with these events."""
        before = body.get("status") or {}
        if kind == "TrainingJob":
            ended_now = after.get("finishedAt") and not before.get("finishedAt")
            start, result = body["metadata"].get("creationTimestamp"), _training_result(after)
        elif kind == "ModelDeployment" and (
            counted_transitions.under_way(before) or counted_transitions.under_way(after)
        ):
            start = before.get("rolloutStartedAt")
            ended_now = counted_transitions.under_way(before) and (
                not counted_transitions.under_way(after) or after.get("rolloutStartedAt") != start
            )
            result = _rollout_result(before, after)
        else:
            return
        # A decision belongs to what it ends, else to what it begins.
        root = _root(counted_transitions.of_object(kind, body if ended_now else {**body, "status": after}))
        about = _about(kind, body, after)
        for notice in events:
            failed = notice.message if notice.type == "Warning" else ""
            self._span(notice.reason, root, about | {named.DECISION: notice.message}, began, ended, failed)
        if ended_now:
            self._ids.root = root
            about[named.PIPELINE_RESULT] = result[0]
            self._span(f"RUN {PIPELINES[kind]}", None, about, times.parse(start) or began, ended, result[1])
            self._ids.root = None

    def _span(
        self,
        name: str,
        parent: SpanContext | None,
        attributes: Mapping[str, Any],
        began: datetime,
        ended: datetime,
        failed: str,
    ) -> None:
        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(NonRecordingSpan(parent)) if parent else None,
            kind=SpanKind.INTERNAL if parent else SpanKind.SERVER,
            attributes={key: str(value)[:LONGEST] for key, value in attributes.items() if value is not None},
            start_time=_nanoseconds(began),
        )
        if failed:
            span.set_status(StatusCode.ERROR, failed[:LONGEST])
        span.end(_nanoseconds(max(began, ended)))


def exporting(endpoint: str, attributes: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Tracer:
    ids = DerivedIds()
    provider = named.tracer_provider("learnloop-operator", endpoint, ids, headers=headers, attributes=attributes)
    return Tracer(provider, ids)


def _root(trace_of_it: str) -> SpanContext:
    span = int(telemetry.trace_id(trace_of_it, "root")[:16], 16)
    return SpanContext(int(trace_of_it, 16), span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _about(kind: str, body: plan.KubeObject, status: counted_transitions.Status) -> dict[str, Any]:
    metadata, arm = body["metadata"], status.get("canary") or status.get("stable") or {}
    return {
        named.PIPELINE_NAME: PIPELINES[kind],
        named.PIPELINE_RUN: metadata.get("uid"),
        named.NAMESPACE: metadata["namespace"],
        named.AGENT: counted_transitions.agent_of({**body, "kind": kind}, status),
        named.OBJECT: f"{kind} {metadata['name']}",
        named.ATTEMPT: status.get("attempts"),
        named.STEPS: status.get("step") if kind == "TrainingJob" else None,
        named.REVISION: arm.get("revision"),
        named.WEIGHT: status.get("weight"),
    }


def _training_result(status: counted_transitions.Status) -> tuple[str, str]:
    ready = conditions.find(status, "Ready")
    passed = ready.get("status") == "True"
    return (named.SUCCESS, "") if passed else (named.FAILURE, str(ready.get("message") or "failed"))


def _rollout_result(before: counted_transitions.Status, after: counted_transitions.Status) -> tuple[str, str]:
    old = [(block["revision"], block.get("at")) for block in before.get("blockedRevisions") or ()]
    fresh = [block for block in after.get("blockedRevisions") or () if (block["revision"], block.get("at")) not in old]
    if fresh:
        return named.FAILURE, str(fresh[-1].get("message") or fresh[-1].get("reason"))
    promoted, began = times.parse(after.get("promotedAt")), times.parse(before.get("rolloutStartedAt"))
    first = not before.get("stable") and after.get("stable")
    passed = first or (promoted is not None and began is not None and promoted >= began)
    return (named.SUCCESS if passed else named.CANCELLED), ""


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
