"""What must not be lost while a model trains."""

import pytest

from demo.settings import SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Json, World, learnloop


def long_job(steps: int) -> Json:
    """A job of about half a minute with two workers and a checkpoint every second."""
    pod = {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "1"}}}
    return learnloop(
        "TrainingJob",
        "long",
        {
            "algorithm": "ppo",
            "totalSteps": steps,
            "workers": 1,
            "seed": 7,
            "checkpoint": {"everySeconds": 1},
            "evaluation": {"episodes": 20},
            "stallSeconds": 60,
            "data": {"environment": "CartPole-v1"},
            "pod": pod,
        },
    )


def _started(world: World, namespace: str, job: str, at_least: int) -> bool:
    return int(world.status(namespace, "trainingjobs", job).get("step") or 0) >= at_least


@pytest.mark.disturbs
def test_an_operator_killed_in_mid_training_proves_the_model_all_the_same(world: World, namespace: str) -> None:
    world.apply(namespace, long_job(600_000))
    world.until("progress", lambda: _started(world, namespace, "long", 30_000), 180)
    world.kill_operator()
    status = world.phase(namespace, "trainingjobs", "long", "Validated", seconds=400)
    assert status["attempts"] == 1
    assert status["step"] >= 600_000


def test_a_worker_pod_deleted_in_mid_training_costs_only_seconds(world: World, namespace: str) -> None:
    world.apply(namespace, long_job(600_000))
    world.until("progress", lambda: _started(world, namespace, "long", 60_000), 180)
    world.api.run("delete", "pod", "-n", namespace, "long-worker-0", "--grace-period=0", "--force")
    status = world.phase(namespace, "trainingjobs", "long", "Validated", seconds=400)
    assert status["evaluation"]["mean"] >= 400
    logs = world.api.run("logs", "-n", namespace, "long-master-0", "--tail=-1")
    assert "resum" in logs.lower(), "the gang started over instead of resuming from its checkpoint"


@pytest.mark.disturbs
def test_the_data_plane_gone_in_mid_training_only_delays_the_proof(world: World, namespace: str) -> None:
    world.apply(namespace, long_job(400_000))
    world.until("progress", lambda: _started(world, namespace, "long", 30_000), 180)
    world.api.run("delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=data-plane")
    world.phase(namespace, "trainingjobs", "long", "Validated", seconds=400)
