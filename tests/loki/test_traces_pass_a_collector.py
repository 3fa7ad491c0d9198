"""The operator's spans and log events, as an OpenTelemetry collector reads them and sends them on."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from learnloop_operator.reconcile.span_export import SpanExport
from learnloop_operator.reconcile.tracer import Tracer
from testing.logs.collector import forwarding
from testing.logs.loki_server import until_true
from testing.servers.otlp_receiver import Receiver
from testing.simulation.rollout_cluster import BAD, BETTER, Cluster

SECONDS = 60.0


class Traced(Cluster):
    """Shows each pass to a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def _status(self, status: dict[str, Any]) -> None:
        before = self.status
        super()._status(status)
        body = {"metadata": {"uid": "u", "name": "md", "namespace": "ns"}, "spec": self.spec}
        self._tracer.saw("ModelDeployment", body, before, status, self.now)


def sent(endpoint: str, receiver: Receiver) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Spans and events of the same two rollouts, a promotion and a rollback, as `receiver` has got them."""
    exporter = SpanExport(endpoint, {})
    cluster = Traced(Tracer(exporter, lambda _, __: None))
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(40)
    cluster.wish(2, BAD)
    cluster.settle()
    exporter.close()
    return receiver.spans, receiver.events


def test_a_collector_takes_every_span_and_event_and_each_trace_has_one_root(tmp_path: Path) -> None:
    direct, behind = Receiver().begin(), Receiver().begin()
    spans, events = sent(direct.url, direct)
    with forwarding(behind.url, tmp_path) as endpoint:
        through, judged = sent(endpoint, behind)
        whole = (len(spans), len(events))
        until_true(
            lambda: (len(through), len(judged)) == whole, SECONDS, lambda: f"{len(through)}, {len(judged)}: {whole}"
        )
    assert spans
    assert events
    for found, wanted in ((through, spans), (judged, events)):
        assert sorted(map(str, found)) == sorted(map(str, wanted)), "nothing was changed on the way"
    traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in through:
        traces[span["trace"]].append(span)
    for mine in traces.values():
        assert sum(not span["parent"] for span in mine) == 1
        assert {span["parent"] for span in mine if span["parent"]} <= {span["id"] for span in mine}
