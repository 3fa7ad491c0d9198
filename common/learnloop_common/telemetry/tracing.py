"""Spans to an OpenTelemetry collector: OTLP over HTTP by opentelemetry-sdk, imported only when traces are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from learnloop_common.telemetry import conventions

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator


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

    resource = Resource.create({**(attributes or {}), conventions.SERVICE_NAME: service_name}, conventions.SCHEMA_URL)
    provider = TracerProvider(resource=resource, id_generator=id_generator)
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", headers=dict(headers) if headers else None)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
