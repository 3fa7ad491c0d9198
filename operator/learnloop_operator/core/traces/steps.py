"""What all steps and all roots say."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from learnloop_common.telemetry import conventions as named
from learnloop_common.telemetry.spans import Attributes, Span, SpanEvaluation, span_id
from learnloop_operator.core.counted_transitions import agent_of
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.traces import ids

_PIPELINES = {"TrainingJob": "training", "ModelDeployment": "rollout"}


def about(kind: str, body: Manifest, status: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """What every root says."""
    metadata = body["metadata"]
    return {
        named.PIPELINE_NAME: _PIPELINES[kind],
        named.PIPELINE_RUN: str(metadata.get("uid", "")),
        named.NAMESPACE: str(metadata["namespace"]),
        named.AGENT: agent_of(body, status),
        named.OBJECT: f"{kind} {metadata['name']}",
    }


def step(
    trace: str,
    name: str,
    identity: str,
    began: datetime,
    ended: datetime,
    told: Attributes,
    failed: str = "",
    evaluations: tuple[SpanEvaluation, ...] = (),
) -> Span:
    """A child of the trace's root. `identity`: what makes it another one than the steps beside it."""
    return Span(
        trace=trace,
        id=span_id(trace, identity),
        parent=ids.root(trace),
        name=name,
        began=began,
        ended=ended,
        attributes={
            named.TASK_NAME: name,
            named.TASK_RUN: identity,
            **told,
            named.TASK_RESULT: named.FAILURE if failed else named.SUCCESS,
        },
        evaluations=evaluations,
        failed=failed,
    )
