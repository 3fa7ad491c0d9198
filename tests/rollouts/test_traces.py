"""One trace for each rollout, however it ends: each decision is a span, and one root has the result."""

from collections import defaultdict
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from learnloop_operator.reconcile.tracing import DerivedIds, Tracer
from testing.simulation.rollout_cluster import BAD, BETTER, GOOD, LEAST, Cluster


class Traced(Cluster):
    """Each status that is written is traced; with `fresh`, by a tracer that knows nothing."""

    def __init__(self, fresh: bool = False) -> None:
        super().__init__()
        self.spec["analysis"]["metrics"] = LEAST
        self.fresh, self.exporter = fresh, InMemorySpanExporter()
        self.tracer = self._new_tracer()

    def _new_tracer(self) -> Tracer:
        provider = TracerProvider(id_generator=(ids := DerivedIds()))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        return Tracer(provider, ids)

    def _status(self, status: dict) -> None:
        before = self.status
        super()._status(status)
        if self.fresh:
            self.tracer = self._new_tracer()
        body = {"metadata": {"uid": "u", "name": "md", "namespace": "ns"}, "spec": self.spec, "status": before}
        self.tracer.decided("ModelDeployment", body, status, self.noted, self.now, self.now)

    def traces(self) -> list[list[ReadableSpan]]:
        result = defaultdict[int, list[ReadableSpan]](list)
        for span in self.exporter.get_finished_spans():
            result[span.context.trace_id].append(span)
        return list(result.values())


def promoted(cluster: Cluster) -> None:
    cluster.promote(1, BETTER)
    cluster.run(40)


def rolled_back(cluster: Cluster) -> None:
    cluster.wish(1, BAD)
    cluster.settle()


def superseded(cluster: Cluster) -> None:
    cluster.rise(1, BETTER, 25)
    cluster.wish(2, BETTER)
    cluster.settle()
    cluster.run(40)


def withdrawn(cluster: Cluster) -> None:
    cluster.rise(1, BETTER, 25)
    cluster.wish(0, GOOD)
    cluster.run(60)


def swapped_back(cluster: Cluster) -> None:
    cluster.promote(1, BETTER)
    cluster.quality["https://models.example/1.onnx"] = BAD
    cluster.run(60)


ENDS: dict[Callable[[Cluster], None], list[str]] = {
    promoted: ["success"],
    rolled_back: ["failure"],
    superseded: ["cancellation", "success"],
    withdrawn: ["cancellation"],
    swapped_back: ["failure"],
}


@pytest.mark.parametrize("story", ENDS, ids=lambda story: story.__name__)
@pytest.mark.parametrize("fresh", [False, True], ids=["one leader", "a new leader at each write"])
def test_each_rollout_has_one_root_and_no_orphans(story: Callable[[Cluster], None], fresh: bool) -> None:
    cluster = Traced(fresh)
    cluster.run(10)
    story(cluster)
    results = []
    for trace in cluster.traces():
        (root,) = [span for span in trace if span.parent is None]
        assert {span.parent.span_id for span in trace if span.parent} <= {root.context.span_id}
        results.append((root.attributes or {})["cicd.pipeline.result"])
    assert results == ENDS[story]


def test_a_promotion_has_a_span_for_each_decision_with_weight_and_sentence() -> None:
    cluster = Traced()
    cluster.run(10)
    promoted(cluster)
    (trace,) = cluster.traces()
    spans = {span.name: span.attributes or {} for span in trace}
    assert "Promoted" in spans
    assert spans["Promoted"]["learnloop.decision"]
    assert {"10", "25", "50", "100"} <= {(span.attributes or {}).get("learnloop.rollout.weight") for span in trace}


def test_a_rollback_says_why_in_its_root() -> None:
    cluster = Traced()
    cluster.run(10)
    rolled_back(cluster)
    (trace,) = cluster.traces()
    (root,) = [span for span in trace if span.parent is None]
    assert root.status.description == cluster.status["blockedRevisions"][-1]["message"]
