"""Nothing an agent experienced is lost when a part of the data plane restarts."""

import re
import time

import pytest

from demo.learning import Learned
from demo.settings import AGENT, SYSTEM_NAMESPACE, Settings
from testing.real_cluster.cluster_actions import World

ENDED = re.compile(
    r'^learnloop_episodes_ended_total\{[^}]*outcome="(?:success|failure|error)"[^}]*\} ([0-9.e+]+)', re.M
)
EPISODES = 20


def _stored(world: World, namespace: str) -> int:
    """Trajectories in PostgreSQL, asked of PostgreSQL itself."""
    query = f"SELECT count(*) FROM trajectories WHERE namespace = '{namespace}'"
    psql = ("psql", "-U", "learnloop", "-d", "learnloop", "-Atc", query)
    return int(world.api.run("exec", "-n", SYSTEM_NAMESPACE, "learnloop-postgres-0", "--", *psql))


def _ended(world: World, namespace: str) -> int:
    """Episodes that ended, as the agent's policy servers count them."""
    total = 0.0
    for pod in world.api.pods(namespace, f"learnloop.dev/model-deployment={AGENT}"):
        total += sum(float(value) for value in ENDED.findall(world.api.pod_metrics(pod) or ""))
    return int(total)


def _one_arm(world: World, namespace: str) -> bool:
    """Pods of an arm that goes take their counters with them."""
    stable = (world.status(namespace, "modeldeployments", AGENT).get("stable") or {}).get("revision")
    pods = world.api.pods(namespace, f"learnloop.dev/model-deployment={AGENT}")
    return all(pod["metadata"]["labels"]["learnloop.dev/revision"] == stable for pod in pods)


def _suspend(world: World, namespace: str, suspended: bool) -> None:
    """Stopped actors hand over what they still hold before they go."""
    world.patch(namespace, "learningagent", AGENT, {"spec": {"suspend": suspended}})
    if suspended:
        world.until("the actors gone", lambda: not world.api.pods(namespace, "app.kubernetes.io/component=actor"), 90)


def _difference_at_rest(world: World, namespace: str) -> int:
    """Stored minus ended once nothing moves; not 0, for pods that are gone took their counters with them."""
    seen = [-1, -1]
    while seen != (now := [_stored(world, namespace), _ended(world, namespace)]):
        seen = now
        time.sleep(3)
    return now[0] - now[1]


@pytest.mark.disturbs
def test_no_trajectory_is_lost_when_nats_restarts(world: World, learned: tuple[Settings, Learned]) -> None:
    namespace = learned[0].namespace
    world.phase(namespace, "modeldeployments", AGENT, "Healthy", seconds=240)
    world.until("one arm alone", lambda: _one_arm(world, namespace), 120)
    _suspend(world, namespace, True)
    before, ended = _difference_at_rest(world, namespace), _ended(world, namespace)
    _suspend(world, namespace, False)
    try:
        world.until("new episodes", lambda: _ended(world, namespace) >= ended + EPISODES, 120)
        selector = "app.kubernetes.io/component=nats"
        world.api.run("delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", selector, "--grace-period=0", "--force")
        ended = _ended(world, namespace)
        world.until("episodes during the fault", lambda: _ended(world, namespace) >= ended + EPISODES, 120)
        world.api.run("rollout", "status", "-n", SYSTEM_NAMESPACE, "statefulset/learnloop-nats", "--timeout=120s")
        _suspend(world, namespace, True)
        world.until(
            "every ended episode stored", lambda: _stored(world, namespace) - _ended(world, namespace) == before, 60, 2
        )
        assert _difference_at_rest(world, namespace) == before
    finally:
        _suspend(world, namespace, False)
