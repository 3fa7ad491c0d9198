"""The simulated cluster with gates: suites are Jobs that end as the test says; users meet only models that passed."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from learnloop_api import names
from learnloop_api.wire.deployment import GateReport, StoredReport
from learnloop_operator.rollout.children.gate_jobs import suite_runs
from learnloop_operator.rollout.state.snapshot import Snapshot
from testing.simulation.rollout_cluster import Cluster

DETECTOR = {
    "name": "rules",
    "sha256": "d" * 64,
    "positives": 50,
    "negatives": 50,
    "true_positives": 45,
    "false_positives": 5,
}
ENDS_AFTER = 5


class GatedCluster(Cluster):
    """A suite runs for five seconds and then ends as `ends` says: with so many failures, by a crash, or never."""

    def __init__(self, gates: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.spec["gates"] = gates or {"suites": [{"name": "refusal", "builtin": "refusal", "samples": 300}]}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.began: dict[str, datetime] = {}
        self.ends: dict[str, int | str] = {}
        """Failures of a suite's 300 answers, by its name; or "crash", "hang", "silent": it ends without a report."""
        self.reports: list[StoredReport] = []
        self.data_plane = True
        self.strict = False
        """The first model has gates, too."""
        self.passed: set[str] = set()
        self.calls: list[Any] = []

    def snapshot(self) -> Snapshot:
        bare = super().snapshot()
        if bare.before.gates is None or bare.before.gates.phase != "Running":
            return bare
        reports = self.reports if self.data_plane else []
        return replace(
            bare,
            children=(*bare.children, *self.jobs.values()),
            suite_runs=suite_runs(self.jobs.values(), (), reports),
            reports_problem="" if self.data_plane else "the data plane does not answer",
        )

    def reconcile(self, crash_after: int | None = None) -> Any:
        plan = super().reconcile(crash_after)
        self.calls += plan.calls
        return plan

    def _apply(self, manifest: dict[str, Any]) -> None:
        super()._apply(manifest)
        if manifest["kind"] == "Job":
            name = manifest["metadata"]["name"]
            assert name not in self.jobs, "a Job is made once"
            self.jobs[name], self.began[name] = {**manifest, "status": {"active": 1}}, self.now

    def _delete(self, ref: Any) -> None:
        super()._delete(ref)
        if ref.kind == "Job":
            self.jobs.pop(ref.name)

    def _status(self, status: dict[str, Any]) -> None:
        super()._status(status)
        gates = status.get("gates")
        if gates and gates["phase"] == "Passed":
            self.passed.add(gates["revision"])

    def check(self) -> None:
        super().check()
        for revision, share in self.shares().items():
            trusted = revision in self.passed or (not self.strict and self.model_of(revision) == self.first())
            assert not share or trusted, f"{revision} gets {share} % before its gates"

    def first(self) -> str:
        """The model that served before there were gates."""
        return "https://models.example/0.onnx"

    def tick(self, seconds: int) -> None:
        super().tick(seconds)
        for name, job in self.jobs.items():
            waited = (self.now - self.began[name]).total_seconds()
            if job["status"].get("active") and waited >= ENDS_AFTER:
                self._end(name, job)

    def _end(self, name: str, job: dict[str, Any]) -> None:
        suite = job["metadata"]["labels"][names.LABEL_GATE_SUITE]
        end = self.ends.get(suite, 0)
        if end == "hang":
            return
        kind = "Failed" if end == "crash" else "Complete"
        at = self.now.isoformat().replace("+00:00", "Z")
        condition = {"type": kind, "status": "True", "reason": "x", "lastTransitionTime": at}
        self.jobs[name] = {**job, "status": {"conditions": [condition]}}
        if isinstance(end, int):
            env = job["spec"]["template"]["spec"]["initContainers"][0]["env"]
            candidate = next(item["value"] for item in env if item["name"] == "LEARNLOOP_GATE_CANDIDATE")
            body = {"suite": suite, "revision": candidate, "n": 300, "failures": {"bad": end}, "detector": DETECTOR}
            report = GateReport.model_validate(body)
            self.reports.append(StoredReport(job=name, sha256="e" * 64, received_at=self.now, report=report))
