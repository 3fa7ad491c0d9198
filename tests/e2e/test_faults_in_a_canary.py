"""A rollout that loses Prometheus, then its operator, and ends as if nothing had been."""

import time
from collections.abc import Callable

import pytest

from demo.settings import AGENT, SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Json, Rig

pytestmark = pytest.mark.disturbs


def test_a_canary_holds_without_prometheus_and_a_killed_operator_finishes_its_rollout(rig, api, learned):
    namespace = learned[0].namespace
    never = {"triggers": {"episodes": 1_000_000}}  # no other training takes the cores that this rollout needs
    rig.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": False, "training": never}})
    before = rig.until("a settled deployment", lambda: _settled(rig.status(namespace, "modeldeployments", AGENT)), 120)
    template = {"serving": {"pod": {"env": [{"name": "RELEASE", "value": "next"}]}}}
    rig.patch(namespace, "learningagent", AGENT, {"spec": {"deployment": {"template": template}}})
    rig.until("a canary", lambda: rig.canary_weight(namespace, AGENT) >= 10, 120)
    with rig.watching_weights(namespace, AGENT) as weights:
        rig.scale("deployment/learnloop-prometheus", 0)
        try:
            rig.until("the reason in status", lambda: _says_prometheus_is_away(rig, namespace), 60)
            held = rig.canary_weight(namespace, AGENT)
            with rig.watching_weights(namespace, AGENT) as without:
                selector = "app.kubernetes.io/component=prometheus"
                api.run("wait", "-n", SYSTEM_NAMESPACE, "--for=delete", "pod", "-l", selector, "--timeout=60s")
                rig.until("fifteen quiet seconds", _timer(15), 20)
            assert set(without.weights) == {held}, f"the weight moved without evidence: {without.weights}"
            rig.kill_operator()
        finally:
            rig.scale("deployment/learnloop-prometheus", 1)
        rig.until("promotion", lambda: _promoted_over(rig, namespace, before), 300)
    steps = [weight for weight in weights.weights if weight]
    assert steps == sorted(steps), f"the weight went back and forth: {weights.weights}"
    assert set(steps) <= {10, 25, 50, 100}


def _settled(status: Json) -> str | None:
    return status["stable"]["revision"] if status.get("stable") and not status.get("canary") else None


def _promoted_over(rig: Rig, namespace: str, before: str) -> bool:
    revision = _settled(rig.status(namespace, "modeldeployments", AGENT))
    return revision is not None and revision != before


def _says_prometheus_is_away(rig: Rig, namespace: str) -> bool:
    conditions = rig.status(namespace, "modeldeployments", AGENT).get("conditions", [])
    condition = next((item for item in conditions if item["type"] == "DataAvailable"), None)
    return condition is not None and condition["status"] == "Unknown" and "Prometheus" in condition["message"]


def _timer(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
