"""Spans reach a collector with the ids, times, parents, links and judgements that the status gave them."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

from learnloop_operator.core.traces import Link, Span, SpanEvaluation, root, span_id, trace_id
from learnloop_operator.reconcile.span_export import SpanExport
from testing.servers.otlp_receiver import Receiver

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRACE = trace_id("u")


def test_a_root_and_its_step_arrive_as_they_were_derived() -> None:
    receiver = Receiver().begin()
    judged = (SpanEvaluation("return", False, "too low", AT, 0.5),)
    link = (Link("a" * 32, "b" * 16, "training"),)
    step = Span(
        TRACE, span_id(TRACE, "1"), "step", AT, AT + timedelta(seconds=5), root(TRACE), {"n": 1, "t": "x" * 2000}
    )
    whole = Span(TRACE, root(TRACE), "RUN", AT, AT, "", {}, link, judged, "it was worse")
    export = SpanExport(receiver.url, {"k8s.namespace.name": "ns"}, {"authorization": "Bearer t"})
    export.send([step, whole])
    export.close()
    first, second = receiver.spans
    assert (first["trace"], first["id"], first["parent"]) == (TRACE, span_id(TRACE, "1"), root(TRACE))
    assert first["ended"] - first["began"] == 5_000_000_000
    assert first["told"] == {"n": 1, "t": "x" * 1024}
    assert (second["id"], second["parent"], second["failed"]) == (root(TRACE), "", True)
    assert second["links"] == [("a" * 32, "b" * 16)]
    assert second["resource"]["k8s.namespace.name"] == "ns"
    [event] = receiver.events
    assert event["name"] == "gen_ai.evaluation.result"
    assert event["told"]["gen_ai.evaluation.score.label"] == "fail"
    assert receiver.headers[0]["authorization"] == "Bearer t"
    receiver.shutdown()


def test_the_operator_imports_no_opentelemetry_before_it_traces() -> None:
    code = (
        "import sys, learnloop_operator.__main__;"
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'google.protobuf'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
