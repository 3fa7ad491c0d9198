"""The operator's spans and log events, as an OpenTelemetry collector reads them and sends them on."""

from collections import defaultdict
from pathlib import Path

from learnloop_operator.reconcile.tracing import Tracer, exporting
from testing.logs.collector import forwarding
from testing.logs.loki_server import until_true
from testing.servers.otlp_receiver import Receiver
from testing.simulation.rollout_cluster import BAD, BETTER, Cluster

SECONDS = 60.0


def _content(span: dict) -> str:
    """A span without the random id of a decision."""
    return str({key: value for key, value in span.items() if key != "id" or not span["parent"]})


class Traced(Cluster):
    """Shows each pass to a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def _status(self, status: dict) -> None:
        before = self.status
        super()._status(status)
        body = {"metadata": {"uid": "u", "name": "md", "namespace": "ns"}, "spec": self.spec, "status": before}
        self._tracer.decided("ModelDeployment", body, status, self.noted, self.now, self.now)


def sent(endpoint: str, receiver: Receiver) -> list[dict]:
    """Spans of the same two rollouts, a promotion and a rollback, as `receiver` has got them."""
    tracer = exporting(endpoint, {})
    cluster = Traced(tracer)
    cluster.run(10)
    cluster.promote(1, BETTER)
    cluster.run(40)
    cluster.wish(2, BAD)
    cluster.settle()
    tracer.close()
    return receiver.spans


def test_a_collector_takes_every_span_and_each_trace_has_one_root(tmp_path: Path) -> None:
    direct, behind = Receiver().begin(), Receiver().begin()
    spans = sent(direct.url, direct)
    with forwarding(behind.url, tmp_path) as endpoint:
        through = sent(endpoint, behind)
        until_true(lambda: len(through) == len(spans), SECONDS, lambda: f"{len(through)} of {len(spans)}")
    assert spans
    assert sorted(map(_content, through)) == sorted(map(_content, spans)), "nothing was changed on the way"
    traces = defaultdict(list)
    for span in through:
        traces[span["trace"]].append(span)
    for trace in traces.values():
        assert sum(not span["parent"] for span in trace) == 1
        assert {span["parent"] for span in trace if span["parent"]} <= {span["id"] for span in trace}
