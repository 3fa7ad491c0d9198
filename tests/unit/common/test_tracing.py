"""Spans sent to a collector by opentelemetry-sdk."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from learnloop_common.telemetry import tracer_provider
from testing.servers.otlp_receiver import Receiver


class Derived(RandomIdGenerator):
    def generate_trace_id(self) -> int:
        return 0xABC


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver().begin()
    yield server
    server.shutdown()


def test_spans_arrive_with_resource_headers_attributes_and_derived_ids(receiver: Receiver) -> None:
    provider = tracer_provider(
        "x", receiver.url, Derived(), headers={"authorization": "Bearer t"}, attributes={"k8s.namespace.name": "ns"}
    )
    tracer = provider.get_tracer("learnloop")
    with tracer.start_as_current_span("parent"), tracer.start_as_current_span("child", attributes={"n": 1}):
        pass
    provider.shutdown()
    spans = {span["name"]: span for span in receiver.spans}
    assert set(spans) == {"parent", "child"}
    assert spans["child"]["parent"] == spans["parent"]["id"]
    assert {span["trace"] for span in spans.values()} == {f"{0xABC:032x}"}
    assert spans["child"]["attributes"] == {"n": 1}
    assert spans["parent"]["resource"]["service.name"] == "x"
    assert spans["parent"]["resource"]["k8s.namespace.name"] == "ns"
    assert receiver.headers[0]["authorization"] == "Bearer t"


def test_headers_come_from_the_environment_of_opentelemetry(receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a,x-team=1")
    provider = tracer_provider("x", receiver.url)
    with provider.get_tracer("learnloop").start_as_current_span("s"):
        pass
    provider.shutdown()
    assert (receiver.headers[0]["authorization"], receiver.headers[0]["x-team"]) == ("Bearer a", "1")


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://"])
def test_an_endpoint_that_is_not_an_http_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"set http:// or https:// and a host"):
        tracer_provider("x", endpoint)


def test_opentelemetry_is_not_imported_where_nothing_is_traced() -> None:
    code = (
        "import sys, threading, learnloop_common.telemetry;"
        "loaded = [m for m in sys.modules if m.startswith(('opentelemetry', 'google.protobuf'))];"
        "print(loaded, threading.active_count())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.strip() == "[] 1"
