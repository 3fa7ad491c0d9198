"""Two arms that play Bernoulli episodes, and an operator that looks every second."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import numpy as np

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.core.plan import Plan
from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.children.serving_arms import arms
from learnloop_operator.rollout.decide_deployment import current, decide
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.judging.watched_arms import windows
from learnloop_operator.rollout.state.snapshot import Defaults, Snapshot, resolve
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.opened_episodes import ended_at_once

SUCCESS = {"name": "success", "type": "success", "test": "sequential", "maxDrop": 0.05}
RETURN = {
    "name": "return",
    "type": "return",
    "test": "sequential",
    "maxDrop": 50,
    "returnRange": {"lowest": -100, "highest": 400},
}


class Rig:
    """Two arms that play Bernoulli episodes, 40 a second, and an operator that looks every second."""

    def __init__(self, seed: int, canary: float, *metrics: dict[str, Any], stable: float = 0.9) -> None:
        self.source = np.random.default_rng(seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.means, self.played = {"stable": stable, "canary": canary}, dict.fromkeys(("stable", "canary"), Counts())
        self.spec: dict[str, Any] = {
            "model": {"uri": "https://models.example/0.onnx", "sha256": "ab" * 32},
            "rollout": {"keepForSeconds": 30},
            "analysis": {"intervalSeconds": 1, "metrics": list(metrics or (SUCCESS,))},
        }
        self.status: dict[str, Any] = {}
        self.config_map: dict[str, Any] | None = None
        self.deployments: dict[str, dict[str, Any]] = {}
        self.prometheus = True
        self.verdicts: list[Any] = []
        self.events: list[str] = []
        self.run(3)
        self.spec["model"]["uri"] = "https://models.example/1.onnx"

    def look(self) -> Plan:
        plan = decide(self.snapshot())
        for item in plan.apply:
            if item["kind"] == "ConfigMap":
                self.config_map = dict(item)
            if item["kind"] == "Deployment":
                ready = {"replicas": 1, "readyReplicas": item["spec"]["replicas"]}
                self.deployments[item["metadata"]["name"]] = {**item, "status": ready}
        for ref in plan.delete:
            self.deployments.pop(ref.name, None)
        self.status = dict(plan.status)
        self.events += [event.reason for event in plan.events]
        self.verdicts.append(self.status["verdict"])
        return plan

    def snapshot(self) -> Snapshot:
        spec = ModelDeploymentSpec.model_validate(self.spec)
        metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1}
        head = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
        bare: dict[str, Any] = {
            "now": self.now,
            "object": {**head, "metadata": metadata, "status": self.status},
            "spec": spec,
            "before": ModelDeploymentStatus.model_validate(self.status),
            "desired": resolve(spec, None),
            "arms": arms(self.deployments.values(), []),
            "routing": read(self.config_map),
            "defaults": Defaults("image", "http://data"),
        }
        wanted = windows(Snapshot(**bare), current(Snapshot(**bare)))
        if not wanted:
            return Snapshot(**bare)
        if not self.prometheus:
            return Snapshot(**bare, evidence=Evidence(unavailable="gone"))
        evidence = {wanted[0].revision: self.scraped("canary"), wanted[1].revision: self.scraped("stable")}
        return Snapshot(**bare, evidence=Evidence(evidence))

    def scraped(self, role: str) -> ArmEvidence:
        n, total = int(self.played[role].n), self.played[role].total
        share = total / n if n else None
        mean, errors = (None, None) if share is None else (-100 + 500 * share, 1 - share)
        calls, prompt = 10.0 * n, 10.0 * total
        return ArmEvidence(
            n,
            mean,
            share,
            errors,
            {0.005: prompt, 0.1: calls, inf: calls},
            scraped_at=self.now,
            lately=n,
            openings=ended_at_once(n),
            custom={"own": share} if share is not None else {},
        )

    @property
    def table(self) -> RoutingTable:
        table = read(self.config_map).table
        assert table is not None
        return table

    def run(self, seconds: int) -> str:
        for _ in range(seconds):
            for _ in range(6):
                if self.look().requeue_after != 0.0:
                    break
            if self.status["phase"] in ("RolledBack", "Guarding"):
                break
            self.now += timedelta(seconds=1)
            weight = self.status.get("weight") or 0
            canary = int(self.source.binomial(40, weight / 100))
            for role, n in (("canary", canary), ("stable", 40 - canary)):
                fresh = Counts(n, int(self.source.binomial(n, self.means[role])))
                self.played[role] = self.played[role].plus(fresh)
        return str(self.status["phase"])

    @property
    def evidence(self) -> dict[str, Any]:
        return dict(self.status["evidence"][0])
