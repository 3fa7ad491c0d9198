"""A study without a cluster: a data plane and TrainingJobs in memory, and an operator that may die anywhere."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training import TrainingRun
from learnloop_api.wire.training_request import StudyState, Trial
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.training.decide_study import decide
from learnloop_operator.training.study_trials import StudySnapshot, job_of, trial_name
from testing.training.training_builders import proof

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SPACE = [{"parameter": "learningRate", "float": {"low": 0.001, "high": 0.1, "log": True}}]


def spec(trials: int = 6, parallelism: int = 2, **changes: Any) -> TrainingJobSpec:
    study = {"trials": trials, "parallelism": parallelism, "space": SPACE, **changes.pop("study", {})}
    base = {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "CartPole-v1"}, "study": study}
    return TrainingJobSpec.model_validate({**base, **changes})


class Cluster:
    """Everything that outlives the operator."""

    def __init__(self, wanted: TrainingJobSpec, values: Callable[[int], float | None], uid: str = "u-1") -> None:
        """`values`: what each trial ends with; None: it fails. Below 0 its progress is judged worth stopping."""
        self.spec, self.values, self.now = wanted, values, NOW
        self.status: dict[str, Any] = {}
        self.uid, self.owner = uid, ""
        self.trials: list[dict[str, Any]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.ends: list[int] = []
        self.most = 0
        """Most trials that ever ran at the same time."""

    def gather(self) -> StudySnapshot:
        """The world as a pass sees it."""
        over, best = not any(trial["state"] == "running" for trial in self.trials), self.best()
        run = self._run(trial_name("s", best)) if over and best is not None and self.owner == self.uid else None
        meta = {"name": "s", "namespace": "ns", "uid": self.uid, "generation": 1, "resourceVersion": "1"}
        body = {"apiVersion": "learnloop.dev/v1alpha1", "kind": "TrainingJob", "metadata": meta, "status": self.status}
        return StudySnapshot(
            now=self.now,
            object=body,
            spec=self.spec,
            run=run,
            trials={int(name.removeprefix("s-t")): job_of(job) for name, job in self.jobs.items()},
            state=self._state(best) if self.owner else None,
        )

    def _state(self, best: int | None) -> StudyState:
        trials = [Trial.model_validate(trial) for trial in self.trials]
        return StudyState(job="s", owner=self.owner, trials=trials, best=best)

    def best(self) -> int | None:
        complete = [trial for trial in self.trials if trial["state"] == "complete"]
        return max(complete, key=lambda trial: float(trial["value"]))["number"] if complete else None

    def _run(self, name: str) -> TrainingRun:
        sha256 = self.jobs[name]["status"]["artifact"]["sha256"]
        manifest = proof(job=name, artifact_sha256=sha256, artifact_uri=f"learnloop://ns/{sha256}")
        return TrainingRun(job=name, proof=manifest)

    def apply(self, plan: Plan, cut: int | None = None) -> None:
        """The plan's effects in order; with `cut` the operator dies after so many."""
        effects: list[Callable[[], None]] = [lambda m=m: self._make(m) for m in plan.apply]  # type: ignore[misc]
        effects += [lambda c=c: self._call(c) for c in plan.calls]  # type: ignore[misc]
        effects.append(lambda: self._write(plan))
        for effect in effects if cut is None else effects[:cut]:
            effect()

    def _write(self, plan: Plan) -> None:
        self.status = dict(plan.status)

    def _make(self, manifest: Any) -> None:
        name = manifest["metadata"]["name"]
        job = self.jobs.setdefault(name, {"metadata": manifest["metadata"], "status": {}})
        job["spec"] = manifest["spec"]
        working = [j for j in self.jobs.values() if not j["spec"]["suspend"] and not j["status"].get("finishedAt")]
        self.most = max(self.most, len(working))

    def _call(self, call: Call) -> None:
        parts = call.path.removeprefix("/api/v1/training/studies/s").strip("/").split("/")
        body: Any = call.body
        if parts == [""]:
            if self.owner != body["owner"]:
                self.owner, self.trials = body["owner"], []
            return
        number = int(parts[1])
        if len(parts) == 2:
            assert number <= len(self.trials) < self.spec.study.trials + (number < len(self.trials))  # type: ignore[union-attr]
            if number == len(self.trials):
                parameters = {"learningRate": 0.001 * (1 + number)}
                self.trials.append({"number": number, "state": "running", "parameters": parameters})
            return
        trial = self.trials[number]
        if trial["state"] != "running":
            return
        if parts[2] == "progress":
            trial |= {"reported": body["rung"], "prune": body["value"] < 0}
        else:
            self.ends.append(number)
            trial |= {"state": body["state"], "value": body["value"], "cost": body["cost"], "spent": body["spent"]}

    def work(self, seconds: float = 5.0) -> None:
        """Time passes: trials at work do a third of their steps, suspended ones stop."""
        self.now += timedelta(seconds=seconds)
        for name, job in self.jobs.items():
            status = job["status"]
            if status.get("finishedAt"):
                continue
            suspended = "True" if job["spec"]["suspend"] else "False"
            status["conditions"] = [{"type": "Suspended", "status": suspended}, {"type": "Ready", "message": "works"}]
            if job["spec"]["suspend"]:
                continue
            value = self.values(int(name.removeprefix("s-t")))
            status["step"] = min(1000, status.get("step", 0) + 350)
            status["recentReturn"] = {"mean": 0.0 if value is None else value}
            if status["step"] == 1000:
                status["finishedAt"] = "now"
                if value is not None:
                    status |= {"artifact": {"sha256": f"{int(name.removeprefix('s-t')):064x}"}}
                    status |= {"validation": {"mean": value, "iqm": value}}
                    status |= {"cost": {"cpuHours": 0.25, "gpuHours": 0.0}}


def run(cluster: Cluster, passes: int = 200, cut: Callable[[int], int | None] = lambda number: None) -> Cluster:
    """Passes until the study is finished; `cut(number)`: after how many effects the operator dies in that pass."""
    for number in range(passes):
        cluster.apply(decide(cluster.gather()), cut(number))
        if cluster.status.get("finishedAt"):
            return cluster
        if number % 3 == 2:
            cluster.work()
    raise AssertionError(f"not finished after {passes} passes: {cluster.status.get('conditions')}")
