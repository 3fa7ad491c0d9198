"""The data plane follows its backlog: by a metric that it has, within bounds, and never against its volume."""

import re

import pytest
from prometheus_client import generate_latest

from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.connection import TRAJECTORIES

from .conftest import Rejected, Release, Render

SHARED = {"artifacts": {"s3": {"bucket": "models", "endpoint": "http://s3:9000"}}}
PROMETHEUS = "http://prometheus.monitoring:9090"


def scaled(render: Render, **wish) -> Release:
    return render({"dataPlane": {**SHARED, "autoscaling": wish}})


def query(release: Release) -> str:
    [trigger] = release.one("ScaledObject", "learnloop-data")["spec"]["triggers"]
    return str(trigger["metadata"]["query"])


def test_nothing_scales_unless_it_is_asked_for(render: Render) -> None:
    release = render({"dataPlane": {**SHARED, "replicas": 3}})
    assert not release.of("HorizontalPodAutoscaler", "ScaledObject")
    assert release.one("Deployment", "learnloop-data")["spec"]["replicas"] == 3


@pytest.mark.parametrize("wish", [{"by": "hpa"}, {"by": "keda", "prometheus": PROMETHEUS}])
def test_an_upgrade_does_not_roll_back_the_replicas_that_an_autoscaler_has_set(render, wish):
    release = scaled(render, **wish)
    assert "replicas" not in release.one("Deployment", "learnloop-data")["spec"]
    [scaler] = release.of("HorizontalPodAutoscaler", "ScaledObject")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "learnloop-data"
    assert release.one("PodDisruptionBudget", "learnloop-data")


def test_both_look_at_a_metric_that_the_data_plane_tells_of_the_stream_of_episodes(render: Render) -> None:
    metrics = Metrics()
    text = generate_latest(metrics.registry).decode()
    [external] = scaled(render, by="hpa").one("HorizontalPodAutoscaler", "learnloop-data")["spec"]["metrics"]
    metric = external["external"]["metric"]
    assert f"# TYPE {metric['name']} gauge" in text
    assert metric["selector"]["matchLabels"] == {"stream": TRAJECTORIES}
    match = re.fullmatch(
        r'max\((\w+)\{stream="(\w+)",namespace="learnloop-system"\}\)',
        query(scaled(render, by="keda", prometheus=PROMETHEUS)),
    )
    assert match.groups() == (metric["name"], TRAJECTORIES)


def test_bounds_and_the_backlog_of_each_replica_are_those_of_the_values(render: Render) -> None:
    bounds = {"minReplicas": 3, "maxReplicas": 5, "unreadMessages": 400}
    hpa = scaled(render, by="hpa", **bounds).one("HorizontalPodAutoscaler", "learnloop-data")["spec"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (3, 5)
    assert hpa["metrics"][0]["external"]["target"] == {"type": "AverageValue", "averageValue": "400"}
    keda = scaled(render, by="keda", prometheus=PROMETHEUS, authenticationRef="token", **bounds)
    spec = keda.one("ScaledObject", "learnloop-data")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (3, 5)
    assert spec["triggers"][0]["metadata"]["threshold"] == "400"
    assert spec["triggers"][0]["authenticationRef"] == {"name": "token"}
    for behavior in (hpa["behavior"], spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]):
        assert behavior["scaleUp"]["stabilizationWindowSeconds"] < behavior["scaleDown"]["stabilizationWindowSeconds"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"autoscaling": {"by": "hpa"}}, "share"),
        ({**SHARED, "autoscaling": {"by": "keda"}}, "prometheus is missing"),
        ({**SHARED, "autoscaling": {"by": "hpa", "minReplicas": 9}}, "minReplicas 9 is above maxReplicas 8"),
        ({**SHARED, "autoscaling": {"by": "vpa"}}, "by"),
    ],
)
def test_what_cannot_work_is_refused_with_the_value_to_change(render: Render, values: dict, why: str) -> None:
    with pytest.raises(Rejected, match=why):
        render({"dataPlane": values})
