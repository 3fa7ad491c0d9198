"""Decisions by the fast lane's evidence."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import ROUTING_KEY, RoutingTable
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.evidence import Evidence
from learnloop_operator.rollout.fast_lane import UNREACHABLE, PodEvidence
from learnloop_operator.rollout.state.snapshot import Defaults, LiveArm, Snapshot, resolve
from testing.simulation.fast_lane_pods import NOW, SPEC, START, Pod, after, watched

STABLE = "0" * 8


def snapshot(direct: PodEvidence | None, *, promoted: bool = False, **more) -> Snapshot:
    """A canary at 10 %, or promoted and under guard; Prometheus is gone."""
    spec = ModelDeploymentSpec.model_validate(SPEC)
    model = resolve(spec, None).model
    arms = [
        {"revision": STABLE, "uri": "https://models.example/0.onnx", "sha256": "cd" * 32, "readyReplicas": 1},
        {"revision": model.revision, "uri": model.uri, "sha256": model.sha256, "readyReplicas": 1},
    ]
    roles = {"previous": arms[0], "stable": arms[1]} if promoted else {"stable": arms[0], "canary": arms[1]}
    weights = {} if promoted else {"weight": 10, "step": 0, "stepStartedAt": stamp(START)}
    status = {**roles, **weights, "rolloutStartedAt": stamp(START), "promotedAt": stamp(START) if promoted else None}
    metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1, "annotations": {}}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "status": status}
    fields = {
        "now": NOW,
        "object": body,
        "spec": spec,
        "before": ModelDeploymentStatus.model_validate(status),
        "desired": resolve(spec, None),
        "arms": {revision: LiveArm(ready=1, replicas=1) for revision in (STABLE, model.revision)},
        "defaults": Defaults("image", "http://data"),
        "evidence": Evidence(unavailable="Prometheus does not answer"),
        "direct": {model.revision: replace(direct, revision=model.revision)} if direct else {},
    }
    return Snapshot(**{**fields, **more})


def broken(at: datetime = NOW) -> PodEvidence:
    pod = Pod()
    return replace(after(pod, *[lambda: pod.request(fails=True)] * 10), last_read=at)


def weights(plan: Plan) -> dict[str, int]:
    """Weights in the first thing the plan writes."""
    first = plan.apply[0]
    assert first["kind"] == "ConfigMap"
    return {arm.revision: arm.weight for arm in RoutingTable.model_validate_json(first["data"][ROUTING_KEY]).arms}


def lane(plan: Plan) -> tuple[str, str]:
    return next((item["status"], item["reason"]) for item in plan.status["conditions"] if item["type"] == "FastLane")


@pytest.mark.parametrize(
    "direct",
    [
        None,
        broken(NOW - timedelta(seconds=30)),
        replace(broken(), rollout="2025-12-31T00:00:00Z"),
        replace(broken(), last_read=None),
        watched(),
    ],
    ids=["no request", "old news", "another rollout", "never seen", "nothing happened"],
)
def test_without_a_fresh_breach_of_this_rollout_the_canary_holds(direct: PodEvidence | None) -> None:
    plan = decide(snapshot(direct))
    assert "blockedRevision" not in plan.status
    assert plan.status["weight"] == 10


def test_another_arms_breach_is_none() -> None:
    foreign = snapshot(broken())
    (direct,) = foreign.direct.values()
    plan = decide(replace(foreign, direct={direct.revision: replace(direct, revision=STABLE)}))
    assert plan.status["weight"] == 10


def test_a_lane_that_is_turned_off_says_so_and_takes_nothing_back() -> None:
    off = {**SPEC, "analysis": {**SPEC["analysis"], "fastLane": {"enabled": False}}}
    plan = decide(snapshot(broken(), spec=ModelDeploymentSpec.model_validate(off)))
    assert (plan.status["weight"], lane(plan)) == (10, ("False", "Disabled"))


def test_the_condition_tells_whether_the_pods_can_be_read() -> None:
    assert lane(decide(snapshot(watched()))) == ("True", "Reading")
    assert lane(decide(snapshot(None))) == ("Unknown", "NotNeeded")
    plan = decide(snapshot(watched()))
    sentence = next(item["message"] for item in plan.status["conditions"] if item["type"] == "FastLane")
    assert sentence == "the pods of the arm on trial are read each second"
    degraded = replace(watched(), problem=UNREACHABLE)
    plan = decide(snapshot(degraded))
    assert lane(plan) == ("False", "PodsUnreachable")
    sentence = next(item["message"] for item in plan.status["conditions"] if item["type"] == "FastLane")
    assert "on port 8081: let it through, if a NetworkPolicy keeps it out; Prometheus alone" in sentence
