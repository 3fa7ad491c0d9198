"""What must not go wrong while a canary is out."""

import time
from collections.abc import Callable

import pytest

from demo.api import Api
from demo.learning import Learned
from demo.settings import AGENT, SYSTEM_NAMESPACE, Settings
from testing.real_cluster.cluster_actions import Json, World

pytestmark = pytest.mark.disturbs


@pytest.fixture
def next_revision(world: World, learned: tuple[Settings, Learned], request: pytest.FixtureRequest) -> tuple[str, str]:
    """Rolls out a new revision of the good model; returns the namespace and the revision it replaces."""
    namespace = learned[0].namespace
    before = world.until(
        "a settled deployment", lambda: _settled(world.status(namespace, "modeldeployments", AGENT)), 120
    )
    template = {"serving": {"pod": {"env": [{"name": "RELEASE", "value": request.node.name}]}}}
    world.patch(namespace, "learningagent", AGENT, {"spec": {"deployment": {"template": template}}})
    return namespace, before


def _settled(status: Json) -> str | None:
    return status["stable"]["revision"] if status.get("stable") and not status.get("canary") else None


def _promoted_over(world: World, namespace: str, before: str) -> bool:
    revision = _settled(world.status(namespace, "modeldeployments", AGENT))
    return revision is not None and revision != before


def test_an_operator_killed_in_mid_canary_finishes_the_rollout(world: World, next_revision: tuple[str, str]) -> None:
    namespace, before = next_revision
    world.until("a canary", lambda: world.canary_weight(namespace, AGENT) >= 10, 120)
    with world.watching_weights(namespace, AGENT) as seen:
        world.kill_operator()
        world.until("promotion", lambda: _promoted_over(world, namespace, before), 300)
    steps = [weight for weight in seen.weights if weight]
    assert steps == sorted(steps), f"the weight went back and forth: {seen.weights}"
    assert set(steps) <= {10, 25, 50, 100}


def test_a_canary_holds_while_prometheus_is_gone(world: World, api: Api, next_revision: tuple[str, str]) -> None:
    namespace, before = next_revision
    world.until("a canary", lambda: world.canary_weight(namespace, AGENT) >= 10, 120)
    world.scale("deployment/learnloop-prometheus", 0)
    try:
        world.until("the reason in status", lambda: _says_prometheus_is_away(world, namespace), 60)
        held = world.canary_weight(namespace, AGENT)
        with world.watching_weights(namespace, AGENT) as seen:
            selector = "app.kubernetes.io/component=prometheus"
            api.run("wait", "-n", SYSTEM_NAMESPACE, "--for=delete", "pod", "-l", selector, "--timeout=60s")
            world.until("fifteen quiet seconds", _timer(15), 20)
        assert set(seen.weights) == {held}, f"the weight moved without evidence: {seen.weights}"
    finally:
        world.scale("deployment/learnloop-prometheus", 1)
    world.until("promotion", lambda: _promoted_over(world, namespace, before), 300)


def _says_prometheus_is_away(world: World, namespace: str) -> bool:
    conditions = world.status(namespace, "modeldeployments", AGENT).get("conditions", [])
    said = next((item for item in conditions if item["type"] == "DataAvailable"), None)
    return said is not None and said["status"] == "Unknown" and "Prometheus" in said["message"]


def _timer(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
