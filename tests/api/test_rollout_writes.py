"""LearningAgent and ModelDeployment against a real API server: manifests are accepted, a quiet world costs no write."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop_api import names
from learnloop_api.wire.reward import AgentStats
from learnloop_operator.adapters import kubeconfig
from learnloop_operator.adapters.audit import Audit
from learnloop_operator.adapters.data_plane import DataPlane
from learnloop_operator.adapters.echo import Echo
from learnloop_operator.adapters.events import Recorder
from learnloop_operator.adapters.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    LEARNING_AGENT,
    MODEL_DEPLOYMENT,
    REWARD_POLICY,
    SERVICE,
    TRAINING_JOB,
    ResourceKind,
)
from learnloop_operator.adapters.kube import KubeClient
from learnloop_operator.adapters.metrics import Metrics
from learnloop_operator.adapters.pod_metrics import PodMetrics
from learnloop_operator.adapters.prometheus import Prometheus, Sample
from learnloop_operator.adapters.settings import Settings
from learnloop_operator.cli import main
from learnloop_operator.controllers.apply import Applier
from learnloop_operator.controllers.fast_lane import FastLane
from learnloop_operator.controllers.learning_agent import LearningAgentController
from learnloop_operator.controllers.model_deployment import ModelDeploymentController
from learnloop_operator.controllers.services import Services
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.rollout.table import read

MERGE = "application/merge-patch+json"
SHA = "cd" * 32


class Experience(DataPlane):
    """The data plane's answers, as the agents would have made them."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")
        self.agents: dict[str, Any] = {}
        self.rewarded = 0

    async def stats(self, namespace: str, agent: str) -> AgentStats | None:
        if agent not in self.agents:
            return None
        return AgentStats(agent=agent, trajectories=self.rewarded, rewarded=self.rewarded, recent_episodes=0)

    async def call(self, namespace: str, call: Call) -> None:
        self.agents[call.path.rsplit("/", 1)[1]] = call.body


class Returns(Prometheus):
    """Prometheus' answers for arms of known quality: `episodes` finished episodes each, scraped this moment."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__("http://127.0.0.1:9")
        self.arms: dict[str, tuple[int, float]] = {}
        self.copies: dict[str, float] = {}
        self.clock = clock

    async def query(self, promql: str) -> list[Sample]:
        if names.METRIC_SHADOW_COMPARED in promql:
            return [Sample({"learnloop_signal": signal}, value) for signal, value in self.copies.items()]
        found = []
        for revision, (episodes, mean) in self.arms.items():
            arm = {"revision": revision}
            found.append(Sample({**arm, "learnloop_signal": "ended", "outcome": "success"}, float(episodes)))
            found.append(Sample({**arm, "learnloop_signal": "gain"}, episodes * mean))
            found.append(Sample({**arm, "learnloop_signal": "seen"}, self.clock().timestamp()))
        return found


class Operator:
    """Both controllers, one object at a time, with a clock that the test turns."""

    def __init__(self, path: Path, namespace: str) -> None:
        self.namespace, self.writes = namespace, Counter[str]()
        connection = kubeconfig.from_kubeconfig(path)
        self.kube = KubeClient(connection, written=lambda verb, kind: self.writes.update([f"{verb} {kind}"]))
        self.data, self.prometheus, self.shift = Experience(), Returns(self.now), timedelta()
        lane = FastLane(PodMetrics(), Metrics(), self.now)
        services = Services(self.kube, self.data, self.prometheus, Settings(), lane, clock=self.now)
        self.applier = Applier(
            self.kube,
            self.data,
            Recorder(self.kube, "test"),
            Echo(),
            Audit(Metrics().decisions),
            drafts=services.drafts,
        )
        self.rollout, self.agent = ModelDeploymentController(services), LearningAgentController(services)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift

    async def look(self, controller: Any, name: str) -> Plan:
        snapshot = await controller.gather(self.namespace, name)
        assert snapshot is not None
        plan: Plan = controller.decide(snapshot)
        await self.applier.apply(controller.kind, snapshot, plan)
        return plan

    async def settle(self, controller: Any, name: str) -> dict[str, Any]:
        for _ in range(12):
            plan = await self.look(controller, name)
            if plan.requeue_after != 0.0:
                break
        return (await self.kube.get(controller.kind, self.namespace, name))["status"]

    async def status(self, kind: ResourceKind, name: str, status: dict[str, Any]) -> None:
        path = kind.path(self.namespace, name, "status")
        await self.kube.http.request("PATCH", path, body={"status": status}, content_type=MERGE)

    async def pods_ready(self) -> None:
        for item in await self.kube.list(DEPLOYMENT, self.namespace):
            count = item["spec"]["replicas"]
            await self.status(DEPLOYMENT, item["metadata"]["name"], {"replicas": count, "readyReplicas": count})

    async def create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        await self.kube.create({"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    running = Operator(api_server, namespace)
    yield running
    await running.kube.close()


def model(number: int) -> dict[str, Any]:
    return {"uri": f"https://models.example/{number}.onnx", "sha256": SHA}


async def serve(operator: Operator, name: str = "md", **more: Any) -> dict[str, Any]:
    steps = [{"weight": 10, "minEpisodes": 6}, {"weight": 100, "minEpisodes": 6}]
    spec = {"model": model(0), "rollout": {"steps": steps, "keepForSeconds": 30}, **more}
    await operator.create("ModelDeployment", name, spec)
    await operator.settle(operator.rollout, name)
    await operator.pods_ready()
    return await operator.settle(operator.rollout, name)


async def wish(operator: Operator, number: int) -> str:
    await operator.kube.patch(MODEL_DEPLOYMENT, operator.namespace, "md", {"spec": {"model": model(number)}})
    await operator.settle(operator.rollout, "md")
    await operator.pods_ready()
    status = await operator.settle(operator.rollout, "md")
    operator.shift += timedelta(seconds=20)
    return str(status["canary"]["revision"])


async def test_the_first_model_serves_and_a_second_look_writes_nothing(operator: Operator) -> None:
    status = await serve(operator)
    assert (status["phase"], status.get("weight")) == ("Healthy", None)
    services = {item["metadata"]["name"] for item in await operator.kube.list(SERVICE, operator.namespace)}
    assert services == {"md", f"md-{status['stable']['revision']}"}
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.rollout, "md")
    assert not operator.writes


async def test_a_worse_model_is_taken_back_and_its_arm_removed(operator: Operator) -> None:
    stable = (await serve(operator))["stable"]["revision"]
    canary = await wish(operator, 1)
    operator.prometheus.arms = {stable: (60, 486.1), canary: (6, 9.3)}
    status = await operator.settle(operator.rollout, "md")
    said = "RolledBack at 10 %: return of the canary 9.3 vs 486.1 of stable over 6 episodes; bar 0.8×"
    assert status["blockedRevision"]["message"] == said
    table = read(await operator.kube.get(CONFIG_MAP, operator.namespace, "md-routing")).table
    assert table is not None
    assert [(arm.revision, arm.weight) for arm in table.arms] == [(stable, 100)]
    operator.shift += timedelta(seconds=10)
    await operator.settle(operator.rollout, "md")
    left = [item["metadata"]["name"] for item in await operator.kube.list(DEPLOYMENT, operator.namespace)]
    assert left == [f"md-{stable}"]
    operator.writes.clear()
    await operator.look(operator.rollout, "md")
    assert not operator.writes


async def test_a_better_model_is_promoted_without_a_pod_restart(operator: Operator) -> None:
    stable = (await serve(operator))["stable"]["revision"]
    canary = await wish(operator, 1)
    before = await operator.kube.get(DEPLOYMENT, operator.namespace, f"md-{canary}")
    for episodes in range(6, 120, 6):
        operator.shift += timedelta(seconds=3)
        operator.prometheus.arms = {stable: (60, 300.0), canary: (episodes, 480.0)}
        status = await operator.settle(operator.rollout, "md")
        if status["phase"] == "Guarding":
            break
    assert status["stable"]["revision"] == canary
    assert status["stable"]["meanReturn"] == 480.0
    after = await operator.kube.get(DEPLOYMENT, operator.namespace, f"md-{canary}")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    operator.shift += timedelta(seconds=40)
    for _ in range(3):
        status = await operator.settle(operator.rollout, "md")
        await asyncio.sleep(0)
    assert status["phase"] == "Healthy"
    left = [item["metadata"]["name"] for item in await operator.kube.list(DEPLOYMENT, operator.namespace)]
    assert left == [f"md-{canary}"]


async def said(operator: Operator, api_server: Path, *words: str) -> dict[str, Any]:
    """What `kubectl learnloop` is told, and the answer on record."""
    arguments = ["--kubeconfig", str(api_server), "-n", operator.namespace, words[0], "md", *words[1:]]
    assert await asyncio.to_thread(main.main, arguments) == 0
    decisions = (await operator.settle(operator.rollout, "md"))["decisions"]
    return dict(decisions[-1])


async def test_what_people_say_is_obeyed_once_and_kept_with_their_name(operator: Operator, api_server: Path) -> None:
    first = (await serve(operator))["stable"]["revision"]
    second = await wish(operator, 1)
    held = await said(operator, api_server, "pause")
    assert (held["verb"], held["revision"], held["outcome"]) == ("pause", second, "obeyed")
    assert held["by"]
    assert "verified" not in held, "no policy was said to be in force"
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.rollout, "md")
    assert not operator.writes
    assert (await said(operator, api_server, "resume"))["outcome"] == "obeyed"
    assert (await said(operator, api_server, "promote"))["outcome"] == "obeyed"
    await operator.pods_ready()
    status = await operator.settle(operator.rollout, "md")
    assert (status["stable"]["revision"], status["phase"]) == (second, "Guarding")
    assert (await said(operator, api_server, "undo"))["outcome"] == "obeyed"
    table = read(await operator.kube.get(CONFIG_MAP, operator.namespace, "md-routing")).table
    assert table is not None
    assert [(arm.revision, arm.weight) for arm in table.arms] == [(first, 100)]


async def test_a_shadow_step_is_passed_on_copies_for_a_handful_of_writes(operator: Operator) -> None:
    steps = [{"weight": 0, "shadow": {"minRequests": 100, "minAgreement": 0.9}}, {"weight": 100, "minEpisodes": 6}]
    stable = (await serve(operator, rollout={"steps": steps, "keepForSeconds": 0}))["stable"]["revision"]
    operator.writes.clear()
    canary = await wish(operator, 1)
    table = read(await operator.kube.get(CONFIG_MAP, operator.namespace, "md-routing")).table
    assert table is not None
    assert table.mirror is not None
    assert table.mirror.revision == canary
    entry = await operator.kube.get(SERVICE, operator.namespace, "md")
    assert entry["spec"]["selector"][names.LABEL_REVISION] == stable
    for compared in range(10, 121, 10):
        operator.shift += timedelta(seconds=2)
        operator.prometheus.copies = {"compared": compared, "agreed": compared - 1, "errors": 0}
        status = await operator.settle(operator.rollout, "md")
    assert (status["weight"], status["shadow"]["requests"]) == (100, 100)
    entry = await operator.kube.get(SERVICE, operator.namespace, "md")
    assert names.LABEL_REVISION not in entry["spec"]["selector"]
    assert sum(operator.writes.values()) <= 20, operator.writes


async def test_an_experiment_plays_its_arms_and_promotes_the_winner(operator: Operator) -> None:
    arms = [{"name": "a", **model(1), "weight": 30}, {"name": "b", **model(2), "weight": 30}]
    asked = {
        "arms": arms,
        "metric": {"type": "return", "returnRange": {"lowest": 0.0, "highest": 1.0}},
        "onWinner": "promote",
    }
    await serve(operator, experiment=asked)
    await operator.pods_ready()
    status = await operator.settle(operator.rollout, "md")
    assert status["experiment"]["phase"] == "Running"
    stable, a, b = [arm["revision"] for arm in status["experiment"]["arms"]]
    table = read(await operator.kube.get(CONFIG_MAP, operator.namespace, "md-routing")).table
    assert table is not None
    assert {arm.revision: arm.weight for arm in table.arms} == {stable: 40, a: 30, b: 30}
    operator.shift += timedelta(seconds=20)
    for episodes in range(0, 400, 40):
        operator.shift += timedelta(seconds=2)
        operator.prometheus.arms = {stable: (episodes, 0.5), a: (episodes, 0.4), b: (episodes, 0.9)}
        status = await operator.settle(operator.rollout, "md")
        if status["stable"]["revision"] == b:
            break
    assert (status["experiment"]["winner"], status["phase"]) == ("b", "Guarding")
    for _ in range(3):
        operator.shift += timedelta(seconds=40)
        await operator.settle(operator.rollout, "md")
    left = [item["metadata"]["name"] for item in await operator.kube.list(DEPLOYMENT, operator.namespace)]
    assert left == [f"md-{b}"]
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.rollout, "md")
    assert not operator.writes


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
    assert (status["model"]["source"], status["model"]["sha256"]) == ("la-1", SHA)
    rolled = await operator.settle(operator.rollout, "la")
    assert rolled["canary"]["uri"] == model(1)["uri"]
    assert (await operator.kube.get(LEARNING_AGENT, operator.namespace, "la"))["status"]["trainings"] == 2
