"""The controllers of LearningAgent and ModelDeployment on a real API server, pass by pass, with time of its own."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from learnloop_api import names
from learnloop_api.wire.reward import AgentStats
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT, ResourceKind
from learnloop_operator.kube.kubernetes_events import EventRecorder
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.prometheus.client import Prometheus, Sample
from learnloop_operator.prometheus.gather_evidence import PrometheusEvidence
from learnloop_operator.prometheus.pod_counters import CounterReader
from learnloop_operator.reconcile.apply_plan import Applier
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.reconcile.learning_agent import LearningAgentController
from learnloop_operator.reconcile.model_deployment import ModelDeploymentController
from learnloop_operator.reconcile.reward_policy import RewardPolicyController
from learnloop_operator.reconcile.work_queue import Services
from learnloop_operator.settings import Settings
from testing.operators.api_access import MERGE, from_kubeconfig, patch
from testing.simulation.rollout_cluster import CHECKS


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

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        if names.METRIC_SHADOW_COMPARED in promql:
            return [Sample({"learnloop_signal": signal}, value) for signal, value in self.copies.items()]
        samples = []
        for revision, (episodes, mean) in self.arms.items():
            arm = {"revision": revision}
            samples.append(Sample({**arm, "learnloop_signal": "ended", "outcome": "success"}, float(episodes)))
            samples.append(Sample({**arm, "learnloop_signal": "gain"}, episodes * mean))
            samples.append(Sample({**arm, "learnloop_signal": "opened"}, float(episodes)))
            lasted = ({**arm, "learnloop_signal": "lasted", "le": bound} for bound in ("1.0", "+Inf"))
            samples += [Sample(labels, float(episodes)) for labels in lasted]
            samples.append(Sample({**arm, "learnloop_signal": "scraped"}, self.clock().timestamp()))
        return samples


class Operator:
    """Both controllers, one object at a time, with a clock that the test turns; `data`: a data plane that is one."""

    def __init__(self, path: Path, namespace: str, data: DataPlane | None = None) -> None:
        self.namespace, self.writes = namespace, Counter[str]()
        connection = from_kubeconfig(path)
        self.kube = KubeClient(connection, written=lambda verb, kind: self.writes.update([f"{verb} {kind}"]))
        self.data, self.prometheus, self.shift = Experience(), Returns(self.now), timedelta()
        lane = FastLaneReader(CounterReader(), OperatorMetrics(), self.now)
        spoken_to = data or self.data
        services = self.services = Services(
            self.kube, spoken_to, PrometheusEvidence(self.prometheus), Settings(), lane, clock=self.now
        )
        self.applier = Applier(
            self.kube,
            spoken_to,
            EventRecorder(self.kube, "test"),
        )
        self.rollout, self.agent = ModelDeploymentController(services), LearningAgentController(services)
        self.rewards = RewardPolicyController(services)

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
        status: dict[str, Any] = (await self.kube.get(controller.kind, self.namespace, name))["status"]
        return status

    async def until(
        self, controller: Any, name: str, holds: Callable[[dict[str, Any]], bool], seconds: float
    ) -> dict[str, Any]:
        """Settles again and again; the first status of which it holds."""
        end = time.monotonic() + seconds
        while True:
            status = await self.settle(controller, name)
            if holds(status):
                return status
            assert time.monotonic() < end, status
            await asyncio.sleep(0.2)

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


def model(number: int) -> dict[str, Any]:
    return {"uri": f"https://models.example/{number}.onnx", "sha256": f"{number:064x}"}


async def serve(operator: Operator, name: str = "md", **more: Any) -> dict[str, Any]:
    steps = [{"weight": 10, "minEpisodes": 6}, {"weight": 100, "minEpisodes": 6}]
    spec = {
        "model": model(0),
        "rollout": {"steps": steps, "keepForSeconds": 30},
        "analysis": {"metrics": CHECKS},
        **more,
    }
    await operator.create("ModelDeployment", name, spec)
    await operator.settle(operator.rollout, name)
    await operator.pods_ready()
    return await operator.settle(operator.rollout, name)


async def wish(operator: Operator, number: int) -> str:
    await patch(operator.kube, MODEL_DEPLOYMENT, operator.namespace, "md", {"spec": {"model": model(number)}})
    await operator.settle(operator.rollout, "md")
    await operator.pods_ready()
    status = await operator.settle(operator.rollout, "md")
    operator.shift += timedelta(seconds=20)
    return str(status["canary"]["revision"])
