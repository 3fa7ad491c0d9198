"""A rollout that loses Prometheus, then its operator, and ends as if nothing had been."""

import time
from collections.abc import Callable

import pytest

from demo.api import Api
from demo.learning import Learned
from demo.settings import AGENT, SYSTEM_NAMESPACE, Settings
from testing.real_cluster.cluster_actions import Json, World

pytestmark = pytest.mark.disturbs


def test_a_canary_holds_without_prometheus_and_a_killed_operator_finishes_its_rollout(
    world: World, api: Api, learned: tuple[Settings, Learned]
) -> None:
    namespace = learned[0].namespace
    world.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": False}})
    before = world.until(
        "a settled deployment", lambda: _settled(world.status(namespace, "modeldeployments", AGENT)), 120
    )
    template = {"serving": {"pod": {"env": [{"name": "RELEASE", "value": "next"}]}}}
    world.patch(namespace, "learningagent", AGENT, {"spec": {"deployment": {"template": template}}})
    world.until("a canary", lambda: world.canary_weight(namespace, AGENT) >= 10, 120)
    with world.watching_weights(namespace, AGENT) as seen:
        world.scale("deployment/learnloop-prometheus", 0)
        try:
            world.until("the reason in status", lambda: _says_prometheus_is_away(world, namespace), 60)
            held = world.canary_weight(namespace, AGENT)
            with world.watching_weights(namespace, AGENT) as without:
                selector = "app.kubernetes.io/component=prometheus"
                api.run("wait", "-n", SYSTEM_NAMESPACE, "--for=delete", "pod", "-l", selector, "--timeout=60s")
                world.until("fifteen quiet seconds", _timer(15), 20)
            assert set(without.weights) == {held}, f"the weight moved without evidence: {without.weights}"
            world.kill_operator()
        finally:
            world.scale("deployment/learnloop-prometheus", 1)
        world.until("promotion", lambda: _promoted_over(world, namespace, before), 300)
    steps = [weight for weight in seen.weights if weight]
    assert steps == sorted(steps), f"the weight went back and forth: {seen.weights}"
    assert set(steps) <= {10, 25, 50, 100}


def _settled(status: Json) -> str | None:
    return status["stable"]["revision"] if status.get("stable") and not status.get("canary") else None


def _promoted_over(world: World, namespace: str, before: str) -> bool:
    revision = _settled(world.status(namespace, "modeldeployments", AGENT))
    return revision is not None and revision != before


def _says_prometheus_is_away(world: World, namespace: str) -> bool:
    conditions = world.status(namespace, "modeldeployments", AGENT).get("conditions", [])
    said = next((item for item in conditions if item["type"] == "DataAvailable"), None)
    return said is not None and said["status"] == "Unknown" and "Prometheus" in said["message"]


def _timer(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
