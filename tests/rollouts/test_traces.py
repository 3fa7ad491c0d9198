"""One trace for each rollout, however it ends: one root, which comes last, and no step without it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from learnloop_operator.core.traces import Span
from learnloop_operator.reconcile.tracer import Tracer
from testing.simulation.rollout_cluster import BAD, BETTER, GOOD, LEAST, Cluster


class Traced(Cluster):
    """Each status that is written is seen by a tracer; with `fresh`, by one that knows nothing."""

    def __init__(self, fresh: bool = False) -> None:
        super().__init__()
        self.spec["analysis"]["metrics"] = LEAST
        self.fresh, self.spans = fresh, list[Span]()
        self.tracer = Tracer(self, lambda _, __: {"metadata": {"uid": "job"}})

    def send(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    def _status(self, status: dict[str, Any]) -> None:
        before = self.status
        super()._status(status)
        if self.fresh:
            self.tracer = Tracer(self, lambda _, __: None)
        self.tracer.saw("ModelDeployment", self.body(), before, status, self.now)

    def body(self) -> dict[str, Any]:
        metadata = {"uid": "u", "name": "md", "namespace": "ns"}
        return {"metadata": metadata, "spec": self.spec}

    def traces(self) -> list[list[Span]]:
        found = defaultdict[str, list[Span]](list)
        for span in self.spans:
            found[span.trace].append(span)
        return list(found.values())


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
        roots = {span.id: span for span in trace if not span.parent}
        assert len(roots) == 1
        root = trace[-1]
        assert root.parent == "", f"{root.name} came after the root"
        assert {span.parent for span in trace if span.parent} <= {root.id}
        assert all(root.began <= span.began <= span.ended <= root.ended for span in trace)
        results.append(root.attributes["cicd.pipeline.result"])
    assert results == ENDS[story]


def test_steps_follow_one_another_and_a_promotion_has_a_guard() -> None:
    cluster = Traced()
    cluster.run(10)
    promoted(cluster)
    (trace,) = cluster.traces()
    assert [span.name for span in trace] == ["pods", "step 1", "step 2", "step 3", "step 4", "guard", "RUN rollout"]
    assert [span.attributes.get("learnloop.rollout.weight") for span in trace[1:5]] == [10, 25, 50, 100]
    for first, second in pairwise(trace[:6]):
        assert first.ended == second.began
    assert trace[-2].ended - trace[-2].began == timedelta(seconds=30)
    assert [(link.why, bool(link.span)) for link in trace[-1].links] == [("training", True)]


def test_a_rollback_says_why_in_its_step_its_root_and_as_a_judgement() -> None:
    cluster = Traced()
    cluster.run(10)
    rolled_back(cluster)
    (trace,) = cluster.traces()
    *_, step, root = trace
    message = cluster.status["blockedRevisions"][-1]["message"]
    assert step.failed == root.failed == message
    assert root.attributes["error.type"] == cluster.status["blockedRevisions"][-1]["reason"]
    assert [(item.name, item.passed, item.why) for item in root.evaluations] == [
        (root.attributes["error.type"], False, message)
    ]
