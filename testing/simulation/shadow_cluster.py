"""The simulated cluster, whose policy servers copy live requests to the arm in shadow."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from learnloop_operator.rollout.decide_deployment import current
from learnloop_operator.rollout.evidence import Evidence, ShadowEvidence, Window
from learnloop_operator.rollout.judging.watched_arms import shadow_window
from learnloop_operator.rollout.state.snapshot import Snapshot
from testing.simulation.rollout_cluster import STEPS, Cluster

BARS = {"minRequests": 60, "minAgreement": 0.6, "maxErrorRate": 0.02, "maxLatencySeconds": 0.02}


class ShadowCluster(Cluster):
    """The same cluster, whose policy servers copy every request to the arm the table names."""

    def __init__(self, bars: dict[str, Any] | None = None, steps: list[dict[str, Any]] | None = None) -> None:
        super().__init__(steps or [{"weight": 0, "shadow": bars or BARS}, *STEPS])
        self.agreement, self.failing_copies, self.slow = 0.9, 0.0, 0.0
        self.copies: list[tuple[datetime, str, bool, bool, bool]] = []
        self.entry: dict[str, str] = {}

    def snapshot(self) -> Snapshot:
        bare = super().snapshot()
        window = shadow_window(bare, current(bare))
        if window is None:
            return bare
        if not self.prometheus:
            return replace(bare, evidence=Evidence(unavailable="Prometheus does not answer"))
        evidence = replace(bare.evidence, shadow=self.copied(window))
        return replace(bare, evidence=evidence)

    def copied(self, window: Window) -> ShadowEvidence:
        since, scrape = self.now - timedelta(seconds=window.seconds), self.now - timedelta(seconds=self.lag)
        copies = [copy for copy in self.copies if copy[1] == window.revision and since < copy[0] <= scrape]
        fine = [copy for copy in copies if not copy[3]]
        fast = sum(1 for copy in fine if not copy[4])
        return ShadowEvidence(
            compared=len(fine),
            agreed=sum(copy[2] for copy in fine),
            errors=len(copies) - len(fine),
            within={0.01: fast, 0.02: fast, math.inf: len(fine)},
        )

    def _apply(self, manifest: dict[str, Any]) -> None:
        super()._apply(manifest)
        if manifest["kind"] == "Service" and manifest["metadata"]["name"] == "md":
            self.entry = manifest["spec"]["selector"]

    def check_step(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        passed = before.get("step") is not None and after.get("step") == before["step"] + 1
        bars = self.spec["rollout"]["steps"][before["step"]].get("shadow") if passed else None
        if not bars:
            super().check_step(before, after)
            return
        began = datetime.fromisoformat(before["stepStartedAt"])
        copies = [copy for copy in self.copies if copy[1] == before["canary"]["revision"] and copy[0] > began]
        assert len(copies) >= bars["minRequests"], f"passed on {len(copies)} copies"
        assert sum(copy[3] for copy in copies) <= 0.1 * len(copies)

    def check(self) -> None:
        super().check()
        table = self.routing().table
        if table and table.mirror:
            arm = next(arm for arm in table.arms if arm.revision == table.mirror.revision)
            assert (arm.role, arm.weight) == ("canary", 0)
            assert table.expires_at, "a mirror without a dead man's switch"

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            super().tick(1)
            table = self.routing().table
            arm = table.mirrored(self.now) if table and self.traffic else None
            for _ in range(8 if arm else 0):
                assert arm is not None
                draws = [self.random.random() < share for share in (self.agreement, self.failing_copies, self.slow)]
                self.copies.append((self.now, arm.revision, draws[0], draws[1], draws[2]))
