"""Continuous learning on a real API server: from a trigger to a served revision, a roll-back, and what freezes."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop_api import names
from learnloop_api.wire.training import TrainingRun, UpdateOrder
from learnloop_operator.core.plan import Call
from learnloop_operator.kube.kinds import LEARNING_AGENT, MODEL_DEPLOYMENT, TRAINING_JOB
from learnloop_operator.reconcile.training_job import TrainingJobController
from testing.operators.api_access import patch
from testing.operators.controller_passes import Experience, Operator
from testing.simulation.rollout_cluster import CHECKS
from testing.training.training_builders import proof


class Runs(Experience):
    """The data plane, with the one run of this test."""

    run_of: TrainingRun | None = None

    async def run(self, namespace: str, job: str) -> TrainingRun | None:
        return self.run_of

    async def call(self, namespace: str, call: Call) -> None:
        if call.path.endswith("/update") and self.run_of is not None:
            order = UpdateOrder.model_validate(call.body)
            self.run_of = self.run_of.model_copy(update={"update": order})
        elif "/agents/" in call.path:
            await super().call(namespace, call)


class Loop:
    """An agent whose rank stays, and the operator that the test drives."""

    def __init__(self, operator: Operator, data: Runs) -> None:
        self.operator, self.data = operator, data
        self.training, self.means = TrainingJobController(operator.services), dict[str, float]()

    async def began(self) -> None:
        operator, steps = self.operator, [{"weight": 10, "minEpisodes": 6}, {"weight": 100, "minEpisodes": 6}]
        reward = {"components": [{"name": "solved", "type": "success", "weight": 1}]}
        await operator.create("RewardPolicy", "solving", reward)
        await operator.status(operator.rewards.kind, "solving", {"revision": "r1"})
        served = {"rollout": {"steps": steps, "keepForSeconds": 30}, "analysis": {"metrics": CHECKS}}
        template = {"algorithm": "ppo", "totalSteps": 1000, "backend": "job"}
        triggers = {"episodes": 20, "minIntervalSeconds": 0}
        spec = {
            "rewardPolicyRef": {"name": "solving"},
            "task": {"observations": 4, "actions": 2, "external": {"trainingEnvironment": "CartPole-v1"}},
            "training": {"triggers": triggers, "continuous": {"steps": 256}, "template": template},
            "deployment": {"template": served},
        }
        await operator.create("LearningAgent", "la", spec)
        await self.settled()

    async def settled(self) -> dict[str, Any]:
        """The agent's status when nothing more happens by itself."""
        operator = self.operator
        for _ in range(3):
            await operator.settle(operator.agent, "la")
            if await operator.kube.find(TRAINING_JOB, operator.namespace, "la-1") is not None:
                await operator.settle(self.training, "la-1")
            await operator.settle(operator.rollout, "la")
            await operator.pods_ready()
        status: dict[str, Any] = (await operator.kube.get(LEARNING_AGENT, operator.namespace, "la"))["status"]
        return status

    async def triggered(self) -> dict[str, Any]:
        self.data.rewarded += 100
        self.operator.shift += timedelta(seconds=30)
        return await self.settled()

    async def proven(self, update: int, digit: str, **changes: Any) -> dict[str, Any]:
        """The agent's status when the rank has proven this update, whose artifact has a digest of this digit."""
        uri = f"learnloop://{self.operator.namespace}/{digit * 64}"
        facts = {"job": "la-1", "world_size": 1, "update": update, "artifact_uri": uri, "artifact_sha256": digit * 64}
        facts |= {"step": 256} if update else {}
        order = self.data.run_of.update if self.data.run_of else None
        self.data.run_of = TrainingRun(job="la-1", proof=proof(**facts | changes), update=order)
        return await self.settled()

    async def played(self, mean: float, until: str) -> dict[str, Any]:
        """The deployment's status in this phase, while all arms end episodes, those of the canary with this return."""
        operator = self.operator
        for looks in range(1, 61):
            operator.shift += timedelta(seconds=3)
            live = (await operator.kube.get(MODEL_DEPLOYMENT, operator.namespace, "la"))["status"]
            self.means.setdefault(live["stable"]["revision"], 20.0)
            if live.get("canary"):
                self.means[live["canary"]["revision"]] = mean
            operator.prometheus.arms = {revision: (60 + 6 * looks, mean) for revision, mean in self.means.items()}
            status = await operator.settle(operator.rollout, "la")
            if status["phase"] == until:
                return status
        raise AssertionError(f"no {until}: {status}")

    async def job(self) -> dict[str, Any]:
        live: dict[str, Any] = await self.operator.kube.get(TRAINING_JOB, self.operator.namespace, "la-1")
        return live


@pytest.fixture
async def loop(api_server: Path, namespace: str) -> AsyncIterator[Loop]:
    data = Runs()
    running = Operator(api_server, namespace, data)
    running.data = data
    yield Loop(running, data)
    await running.kube.close()


def frozen(status: dict[str, Any]) -> tuple[str, str]:
    condition = next(item for item in status["conditions"] if item["type"] == "Frozen")
    return condition["status"], condition["reason"]


async def test_an_update_is_served_by_a_canary_and_one_that_is_rolled_back_freezes_until_a_person_asks(loop: Loop):
    await loop.began()
    await loop.triggered()
    assert (await loop.job())["spec"]["continuous"] == {"steps": 256, "maxKl": 0.1, "update": 0}
    status = await loop.proven(0, "a")
    assert (status["model"]["sha256"], frozen(status)) == ("a" * 64, ("False", "Learning"))
    await loop.played(400.0, until="Healthy")

    await loop.triggered()
    assert (await loop.job())["spec"]["continuous"]["update"] == 1
    order = loop.data.run_of.update
    assert (order.number, order.goes_on, order.baseline_sha256) == (1, True, "a" * 64)
    status = await loop.proven(1, "b", kl=0.05, baseline_sha256="a" * 64)
    assert status["model"]["sha256"] == "b" * 64
    assert (await loop.triggered())["trainings"] == 2, "the next update waits for the canary"
    undone = await loop.played(20.0, until="RolledBack")
    assert undone["stable"]["sha256"] == "a" * 64

    status = await loop.triggered()
    assert (frozen(status), status["trainings"]) == (("True", "RolledBack"), 2)
    annotated = {"metadata": {"annotations": {names.ANNOTATION_TRAIN: "now"}}}
    await patch(loop.operator.kube, LEARNING_AGENT, loop.operator.namespace, "la", annotated)
    assert (await loop.settled())["trainings"] == 3
    order = loop.data.run_of.update
    assert (order.number, order.goes_on, order.baseline_sha256) == (2, False, "a" * 64)


async def test_an_update_that_strays_is_not_served_and_freezes(loop: Loop) -> None:
    await loop.began()
    await loop.triggered()
    await loop.proven(0, "a")
    await loop.played(400.0, until="Healthy")
    await loop.triggered()
    status = await loop.proven(1, "b", kl=0.2, baseline_sha256="a" * 64)
    assert (status["model"]["sha256"], frozen(status)) == ("a" * 64, ("True", "Strayed"))
    assert (await loop.triggered())["trainings"] == 2
    assert (await loop.job())["status"]["phase"] == "Waiting"
