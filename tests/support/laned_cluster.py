"""The simulated cluster with a fast lane: its pods count requests, and the operator reads them when it looks."""

from dataclasses import replace

from rollout_cluster import Cluster

from learnloop_operator.core.rollout.decide import current
from learnloop_operator.core.rollout.direct import UNREACHABLE, Direct, at_weight, looked, missed
from learnloop_operator.core.rollout.fast_lane import subject
from learnloop_operator.core.rollout.tally import Reading
from learnloop_operator.core.rollout.world import Snapshot
from learnloop_operator.core.times import seconds_since

REQUESTS = 5
"""An episode makes so many requests for an action."""


class LanedCluster(Cluster):
    """`failing`: models whose requests fail; `ever_failing`: those that did at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[str] = set()
        self.ever_failing: set[str] = set()
        self.lane_up = True
        self.processes: dict[str, float] = {}
        self.requests: dict[str, list[float]] = {}
        self.direct: Direct | None = None

    def fail(self, model: str) -> None:
        """Every request to this model fails from now on."""
        self.failing.add(model)
        self.ever_failing.add(model)

    def restart_pods(self, revision: str) -> None:
        """Another process, whose counters begin at 0."""
        self.processes[revision] = self.processes.get(revision, 0.0) + 1.0
        self.requests[revision] = [0.0, 0.0]

    def restart_operator(self) -> None:
        """What the lane knew is gone."""
        self.direct = None

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
        asked = subject(bare, state)
        if asked is None:
            self.direct = None
            return bare
        if self.direct is None or (self.direct.revision, self.direct.rollout) != (asked.revision, asked.rollout):
            self.direct = Direct(asked.revision, asked.rollout)
        self.direct = at_weight(self.direct, asked.weight)
        moment = 1 + int(seconds_since(asked.rollout, self.now))
        if self.lane_up:
            total, failed = self.requests.get(asked.revision, [0.0, 0.0])
            read = Reading(self.processes.get(asked.revision, 0.0), {"requests": total, "failed": failed})
            self.direct = looked(self.direct, {"pod": read}, bare.spec.analysis, self.now, moment)
        else:
            self.direct = missed(self.direct, UNREACHABLE, self.now)
        return replace(bare, direct=self.direct)

    def _status(self, status: dict[str, object]) -> None:
        pinned = status.get("blockedRevision")
        if isinstance(pinned, dict) and pinned["reason"] == "GrossBreach":
            assert pinned["uri"] in self.ever_failing, "a model that never failed was taken back for failing"
        super()._status(status)
