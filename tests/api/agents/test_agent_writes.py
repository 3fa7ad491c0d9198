"""A LearningAgent against a real API server: manifests are accepted, quiet costs no write."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learnloop_operator.core.plan import rfc3339
from learnloop_operator.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    LEARNING_AGENT,
    MODEL_DEPLOYMENT,
    REWARD_POLICY,
    TRAINING_JOB,
)
from learnloop_operator.reconcile.training_job import TrainingJobController
from testing.operators.api_access import patch
from testing.operators.controller_passes import Operator, model

NOW = "2026-03-01T11:00:00Z"


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    running = Operator(api_server, namespace)
    yield running
    await running.kube.close()


async def learner(operator: Operator) -> None:
    reward = {"components": [{"name": "solved", "type": "success", "weight": 1}]}
    await operator.create("RewardPolicy", "solving", reward)
    spec = {
        "rewardPolicyRef": {"name": "solving"},
        "task": {"observations": 4, "actions": 2, "environment": {"name": "CartPole-v1", "successReturn": 195}},
        "training": {"triggers": {"episodes": 20}, "template": {"algorithm": "ppo", "totalSteps": 1000}},
    }
    await operator.create("LearningAgent", "la", spec)


async def test_a_missing_reward_policy_is_a_condition_with_the_field_and_the_fix(operator: Operator) -> None:
    await learner(operator)
    await operator.kube.delete(REWARD_POLICY.ref(operator.namespace, "solving"))
    status = await operator.settle(operator.agent, "la")
    ready = next(item for item in status["conditions"] if item["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RewardPolicyMissing")
    assert ready["message"].startswith("spec.rewardPolicyRef.name: no RewardPolicy 'solving'")


async def test_an_agent_registers_trains_at_its_threshold_and_serves_the_proof(operator: Operator) -> None:
    await learner(operator)
    await operator.status(REWARD_POLICY, "solving", {"revision": "r1"})
    status = await operator.settle(operator.agent, "la")
    assert operator.data.agents == {"la": {"reward_policy": "solving", "reward_policy_revision": "r1"}}
    assert status["model"]["uri"] == "uniform://discrete/2?observations=4"
    await operator.settle(operator.rollout, "la")
    await operator.pods_ready()
    await operator.settle(operator.rollout, "la")
    await operator.settle(operator.agent, "la")
    actor = await operator.kube.get(DEPLOYMENT, operator.namespace, "la-actor")
    assert actor["spec"]["replicas"] == 1

    operator.data.rewarded = 25
    status = await operator.settle(operator.agent, "la")
    assert (status["lastTraining"]["name"], status["lastTraining"]["trigger"]) == ("la-1", "episodes")
    operator.data.rewarded = 100
    status = await operator.settle(operator.agent, "la")
    assert len(await operator.kube.list(TRAINING_JOB, operator.namespace)) == 1
    operator.writes.clear()
    await operator.look(operator.agent, "la")
    assert not operator.writes

    proof = {"phase": "Validated", "finishedAt": "2026-01-01T00:00:00Z", "artifact": model(1)}
    await operator.status(TRAINING_JOB, "la-1", proof)
    status = await operator.settle(operator.agent, "la")
    assert (status["model"]["source"], status["model"]["sha256"]) == ("la-1", status["model"]["sha256"])
    rolled = await operator.settle(operator.rollout, "la")
    assert rolled["canary"]["uri"] == model(1)["uri"]
    assert (await operator.kube.get(LEARNING_AGENT, operator.namespace, "la"))["status"]["trainings"] == 2


async def test_the_run_after_a_rollback_begins_from_what_serves(operator, monkeypatch):
    async def nothing_yet(namespace: str, job: str) -> None:
        return None

    monkeypatch.setattr(operator.data, "run", nothing_yet)
    await learner(operator)
    await operator.status(LEARNING_AGENT, "la", {"model": {**model(2), "source": "la-2"}})
    await operator.create("ModelDeployment", "la", {"model": {"learningAgentRef": {"name": "la"}}})
    block = {"revision": "2222bbbb", **model(2), "reason": "RolledBack", "message": "it is worse", "at": NOW}
    served = {"stable": {"revision": "1111aaaa", **model(1)}, "blockedRevisions": [block]}
    await operator.status(MODEL_DEPLOYMENT, "la", served)
    data = {"environment": "CartPole-v1", "learningAgentRef": {"name": "la"}}
    run = {"algorithm": "ppo", "totalSteps": 1000, "backend": "job", "data": data}
    await operator.create("TrainingJob", "la-3", run)
    await operator.settle(TrainingJobController(operator.services), "la-3")
    [job] = await operator.kube.list(JOB, operator.namespace)
    env = {item["name"]: item.get("value") for item in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    order = json.loads(env["LEARNLOOP_TRAINING_SPEC"])
    assert (order["baselineUri"], order["baselineSha256"]) == (model(1)["uri"], model(1)["sha256"])


async def test_an_edited_environment_config_map_wakes_a_saturated_agent_and_replaces_its_actors(operator):
    reward = {"components": [{"name": "solved", "type": "success", "weight": 1}]}
    await operator.create("RewardPolicy", "solving", reward)
    await operator.status(REWARD_POLICY, "solving", {"revision": "r1"})
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "worlds", "namespace": operator.namespace}}
    await operator.kube.create({**code, "data": {"worlds.py": "STEPS = 10"}})
    environment = {"name": "worlds:Own", "successReturn": 5, "environmentConfigMap": {"name": "worlds"}}
    spec = {
        "rewardPolicyRef": {"name": "solving"},
        "task": {"observations": 4, "actions": 2, "environment": environment},
        "training": {
            "triggers": {"episodes": 1, "minIntervalSeconds": 0},
            "template": {"algorithm": "ppo", "totalSteps": 9},
        },
    }
    await operator.create("LearningAgent", "la", spec)
    await operator.settle(operator.agent, "la")
    await operator.settle(operator.rollout, "la")
    await operator.pods_ready()
    await operator.settle(operator.rollout, "la")
    for number in (1, 2, 3):
        operator.data.rewarded += 10
        status = await operator.settle(operator.agent, "la")
        assert status["trainings"] == number
        await operator.status(
            TRAINING_JOB, f"la-{number}", {"phase": "Failed", "finishedAt": rfc3339(datetime.now(UTC))}
        )
    operator.data.rewarded += 10
    status = await operator.settle(operator.agent, "la")
    assert status["trainings"] == 3, "three runs without gain: it rests"
    before = await operator.kube.get(DEPLOYMENT, operator.namespace, "la-actor")

    await patch(operator.kube, CONFIG_MAP, operator.namespace, "worlds", {"data": {"worlds.py": "STEPS = 20"}})
    status = await operator.settle(operator.agent, "la")
    assert status["trainings"] == 4
    after = await operator.kube.get(DEPLOYMENT, operator.namespace, "la-actor")
    assert after["spec"]["template"] != before["spec"]["template"]
