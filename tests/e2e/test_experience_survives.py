"""Nothing an agent experienced is lost when a part of the data plane restarts."""

import json
import re

from world import World

from demo.learning import Learned
from demo.settings import AGENT, SYSTEM_NAMESPACE, Settings

ENDED = re.compile(
    r'^learnloop_episodes_ended_total\{[^}]*outcome="(?:success|failure|error)"[^}]*\} ([0-9.e+]+)', re.M
)


def _stored(world: World, namespace: str) -> int:
    return int(world.status(namespace, "learningagents", AGENT).get("trajectories") or 0)


def _ended(world: World, namespace: str) -> float:
    """Episodes that ended, as every policy server of the agent counts them."""
    total = 0.0
    for pod in world.api.pods(namespace, f"learnloop.dev/model-deployment={AGENT}"):
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        total += sum(float(value) for value in ENDED.findall(world.api.text(path) or ""))
    return total


def test_no_trajectory_is_lost_when_nats_restarts(world: World, learned: tuple[Settings, Learned]) -> None:
    namespace = learned[0].namespace
    world.until("a settled deployment", lambda: _is_settled(world, namespace), 120)
    offset = world.until("agreement before the fault", lambda: _agreement(world, namespace), 60)
    world.api.run("delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=nats")
    world.api.run("rollout", "status", "-n", SYSTEM_NAMESPACE, "statefulset/learnloop-nats", "--timeout=120s")
    # Stop the actors: what they still hold is flushed, then both sides must differ by what they differed before.
    world.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": True}})
    try:
        world.until("the actors gone", lambda: not world.api.pods(namespace, "app.kubernetes.io/component=actor"), 90)
        world.until(
            "every ended episode stored", lambda: _stored(world, namespace) - _ended(world, namespace) == offset[0], 60
        )
    finally:
        world.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": False}})


def _is_settled(world: World, namespace: str) -> bool:
    status = world.status(namespace, "modeldeployments", AGENT)
    return bool(status.get("stable")) and not status.get("canary") and not status.get("previous")


def _agreement(world: World, namespace: str) -> tuple[float] | None:
    """The constant difference of the two counts: pods that are gone took their counters with them."""
    world.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": True}})
    world.until("the actors gone", lambda: not world.api.pods(namespace, "app.kubernetes.io/component=actor"), 90)
    before = json.dumps([_stored(world, namespace), _ended(world, namespace)])
    world.until("quiet", lambda: json.dumps([_stored(world, namespace), _ended(world, namespace)]) == before, 30, 3)
    difference = _stored(world, namespace) - _ended(world, namespace)
    world.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": False}})
    world.until("new episodes", lambda: _ended(world, namespace) + difference > _stored(world, namespace) - 1, 60)
    return (difference,)
