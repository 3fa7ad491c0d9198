"""Names of OpenTelemetry's semantic conventions, pinned: both groups are in development and change between versions.

Sources: semantic conventions 1.38.0, CICD spans and generative AI events. A change of version is a change of this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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
