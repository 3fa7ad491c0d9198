"""The simulated cluster with a fast lane: its pods count requests, and the operator reads them when it looks."""

from dataclasses import replace
from typing import Any

from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout.checks.hard_bound import Reading
from learnloop_operator.rollout.decide_deployment import current
from learnloop_operator.rollout.fast_lane import UNREACHABLE, PodEvidence, at_weight, looked
from learnloop_operator.rollout.judging.judgement import is_steady
from learnloop_operator.rollout.judging.watched_arms import WatchedArm, watched_arms
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Snapshot
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import Cluster

REQUESTS = 5
"""An episode makes so many requests for an action."""


class LanedCluster(Cluster):
    """`failing`: models whose requests fail; `ever_failing`: those that did at any time. Mixes with other clusters."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.failing: set[str] = set()
        self.ever_failing: set[str] = set()
        self.lane_up = True
        self.processes: dict[str, float] = {}
        self.requests: dict[str, list[float]] = {}
        self.direct: dict[str, PodEvidence] = {}

    def fail(self, model: str) -> None:
        """Every request to this model fails from now on."""
        self.failing.add(model)
        self.ever_failing.add(model)

    def restart_pods(self, revision: str) -> None:
        """Another process, whose counters begin at 0."""
        self.processes[revision] = self.processes.get(revision, 0.0) + 1.0
        self.requests[revision] = [0.0, 0.0]

    def restart_operator(self) -> None:
        """The lane's memory is gone."""
        self.direct = {}

    def tick(self, seconds: int) -> None:
        """Episodes are made of requests."""
        played = len(self.episodes)
        super().tick(seconds)
        for _, revision, _ in self.episodes[played:]:
            counted = self.requests.setdefault(revision, [0.0, 0.0])
            counted[0] += REQUESTS
            counted[1] += REQUESTS if self.model_of_any(revision) in self.failing else 0

    def model_of_any(self, revision: str) -> str:
        """The model of an arm, as long as it lives."""
        return self.model_of(revision) if f"md-{revision}" in self.deployments else ""

    def snapshot(self) -> Snapshot:
        """With what the pods say now."""
        bare = super().snapshot()
        state = current(bare)
        self.direct = {item.revision: self._looked(item, bare, state) for item in watched_arms(bare, state)}
        return replace(bare, direct=dict(self.direct))

    def _looked(self, subject: WatchedArm, bare: Snapshot, state: State) -> PodEvidence:
        evidence = self.direct.get(subject.revision)
        if evidence is None or evidence.rollout != subject.rollout:
            evidence = PodEvidence(subject.revision, subject.rollout)
        evidence = at_weight(evidence, subject.weight)
        if is_steady(bare, state, subject.revision):
            evidence = replace(evidence, steady=True)
        read = {"pod": Reading(self.processes.get(subject.revision, 0.0), self.counters(subject.revision))}
        readings, silent = (read, {}) if self.lane_up else ({}, {"pod": UNREACHABLE})
        moment = 1 + int(seconds_since(subject.rollout, self.now))
        return looked(evidence, readings, subject.questions, self.now, moment, silent)

    def counters(self, revision: str) -> dict[str, float]:
        """Everything the arm's only process has counted."""
        total, failed = self.requests.get(revision, [0.0, 0.0])
        return {"requests": total, "failed": failed}

    def _status(self, status: dict[str, object]) -> None:
        block = status.get("blockedRevision")
        if isinstance(block, dict) and block["reason"] == "GrossBreach":
            assert block["uri"] in self.ever_failing, "a model that never failed was rolled back for failing"
        super()._status(status)


class LanedExperiment(LanedCluster, ExperimentCluster):
    """Several arms side by side, all of them read; the operator looks each second."""

    def run(self, seconds: int) -> None:
        Cluster.run(self, seconds)

    def _status(self, status: dict[str, Any]) -> None:
        for arm in (status.get("experiment") or {}).get("arms", ()):
            if "read from its own pods" in arm.get("message", ""):
                assert arm["uri"] in self.ever_failing, "an arm that never failed was withdrawn for failing"
        super()._status(status)
