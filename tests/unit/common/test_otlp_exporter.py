"""What sends spans: bounded, in the background, and silent about it."""

import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from learnloop_common.telemetry.otlp_exporter import MOST_WAITING, OtlpExporter, headers_of
from learnloop_common.telemetry.spans import Link, Span, SpanEvaluation, span_id, trace_id
from testing.servers.otlp_receiver import Receiver

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRACE = trace_id("u")


def span(number: int, parent: str = "") -> Span:
    judged = (SpanEvaluation("return", False, "too low", AT, 0.5),)
    link = (Link("a" * 32, "b" * 16, "training"),)
    return Span(TRACE, span_id(TRACE, str(number)), f"s{number}", AT, AT, parent, {"n": number}, link, judged, "bad")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver().begin()
    yield server
    server.shutdown()


def until(receiver: Receiver, count: int) -> None:
    deadline = time.monotonic() + 20
    while len(receiver.spans) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def test_spans_come_in_order_with_links_attributes_and_judgements_as_events(receiver: Receiver) -> None:
    counted: Counter[str] = Counter()
    exporter = OtlpExporter(
        receiver.url,
        {"service.name": "x"},
        headers={"authorization": "Bearer t"},
        counted=lambda r, n: counted.update({r: n}),
    )
    exporter.send([span(number, ids) for number, ids in enumerate(("", "c" * 16))])
    exporter.close(10)
    assert [item["name"] for item in receiver.spans] == ["s0", "s1"]
    first = receiver.spans[0]
    assert (first["trace"], first["parent"], first["links"]) == (TRACE, "", [("a" * 32, "b" * 16)])
    assert (first["told"], first["failed"], first["resource"]) == ({"n": 0}, True, {"service.name": "x"})
    assert first["began"] == int(AT.timestamp()) * 10**9
    event = receiver.events[0]
    assert (event["name"], event["trace"], event["span"]) == ("gen_ai.evaluation.result", TRACE, first["id"])
    assert event["told"]["gen_ai.evaluation.score.label"] == "fail"
    assert event["told"]["gen_ai.evaluation.score.value"] == 0.5
    assert receiver.headers[0]["authorization"] == "Bearer t"
    assert counted == {"sent": 2}


def test_a_collector_that_is_away_costs_one_line_and_gets_what_waited(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver.answer = 503
    exporter = OtlpExporter(receiver.url, {})
    exporter.send([span(1)])
    time.sleep(1.0)
    receiver.answer = 200
    until(receiver, 1)
    exporter.close(10)
    told = [record.getMessage() for record in caplog.records]
    assert [item["name"] for item in receiver.spans] == ["s1"]
    assert len(told) == 2
    assert "HTTP 503" in told[0]
    assert "again" in told[1]


def test_what_has_no_room_is_dropped_and_counted_and_nobody_waits() -> None:
    counted: Counter[str] = Counter()
    exporter = OtlpExporter("http://127.0.0.1:9", {}, counted=lambda r, n: counted.update({r: n}))
    began = time.monotonic()
    exporter.send([span(number) for number in range(MOST_WAITING + 1000)])
    assert time.monotonic() - began < 5
    assert counted["dropped"] >= 500
    exporter.close(0.1)


def test_what_a_collector_refuses_is_not_sent_again(receiver: Receiver) -> None:
    counted: Counter[str] = Counter()
    receiver.answer = 400
    exporter = OtlpExporter(receiver.url, {}, counted=lambda r, n: counted.update({r: n}))
    exporter.send([span(1)])
    exporter.close(10)
    assert (counted, len(receiver.headers)) == ({"failed": 1}, 2)


def test_headers_are_pairs_and_a_wrong_part_is_told_by_its_number() -> None:
    assert headers_of("Authorization=Bearer%20a, x=1") == {"authorization": "Bearer a", "x": "1"}
    with pytest.raises(ValueError, match="part 2 is no pair") as found:
        headers_of("a=b,secret")
    assert "secret" not in str(found.value)


def test_nothing_of_opentelemetry_is_imported_where_nothing_is_traced() -> None:
    code = (
        "import sys, threading, learnloop_common.telemetry.otlp_exporter, learnloop_operator.reconcile.tracer;"
        "found = [m for m in sys.modules if m.startswith(('opentelemetry', 'google.protobuf'))];"
        "print(found, threading.active_count())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[] 1"
