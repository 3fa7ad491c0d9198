"""Builders of training worlds: the smallest one, changed by keyword."""

from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api.kinds.training.training_status import TrainingJobStatus
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training import Heartbeat, Parity, Proof, ReturnEstimate, TrainingRun
from learnloop_operator.core.plan import Plan
from learnloop_operator.kube.kinds import PYTORCH_JOB, TRAINING_JOB
from learnloop_operator.training.backends import Backends
from learnloop_operator.training.decide_run import decide
from learnloop_operator.training.ranks import RankDefaults
from learnloop_operator.training.run_snapshot import BackendJob, Rank, TrainingSnapshot

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DEFAULTS = RankDefaults(
    image="localhost/learnloop/trainer:dev",
    pull_policy="IfNotPresent",
    data_url="http://learnloop-data:8080",
    runtime="learnloop",
)
ALL = Backends(defaults=DEFAULTS)
DIGEST = "a" * 64


def spec(**changes: Any) -> TrainingJobSpec:
    base = {"algorithm": "ppo", "totalSteps": 1000, "workers": 2, "data": {"environment": "CartPole-v1"}}
    return TrainingJobSpec.model_validate(base | changes)


def resource(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    meta = {"name": "t", "namespace": "ns", "uid": "u-1", "generation": 1, "resourceVersion": "5", **metadata}
    return {
        "apiVersion": TRAINING_JOB.api_version,
        "kind": TRAINING_JOB.kind,
        "metadata": meta,
        "status": status or {},
    }


def situation(status: dict[str, Any] | None = None, **changes: Any) -> TrainingSnapshot:
    installed = frozenset({"pytorchjob", "job"})
    chosen: dict[str, Any] = {"now": NOW, "object": resource(status), "spec": spec(), "installed": installed} | changes
    return TrainingSnapshot(**chosen)


def job(attempt: int = 0, age: float = 60.0, **changes: Any) -> BackendJob:
    return BackendJob(ref=PYTORCH_JOB.ref("ns", "t"), attempt=attempt, created=NOW - timedelta(seconds=age), **changes)


def rank(number: int = 0, age: float = 60.0, **changes: Any) -> Rank:
    created = NOW - timedelta(seconds=age)
    chosen: dict[str, Any] = {"running": True, "started": created} | changes
    name = "t-master-0" if number == 0 else f"t-worker-{number - 1}"
    return Rank(name=name, created=created, **chosen)


def ranks(age: float = 60.0) -> tuple[Rank, ...]:
    return tuple(rank(number, age) for number in range(3))


def heartbeat(attempt: int = 0, step: int = 420, **changes: Any) -> Heartbeat:
    base = {
        "job": "t",
        "attempt": attempt,
        "phase": "training",
        "step": step,
        "total_steps": 1000,
        "world_size": 3,
        "steps_per_second": 7.0,
        "eta_seconds": 80.0,
        "at": NOW,
    }
    return Heartbeat.model_validate(base | changes)


def run(age: float | None = 1.0, beat: Heartbeat | None = None, proof: Proof | None = None) -> TrainingRun:
    return TrainingRun(job="t", heartbeat=beat, heartbeat_age_seconds=age if beat else None, proof=proof)


def returns(mean: float, low: float | None = None, episodes: int = 100) -> ReturnEstimate:
    bottom = mean - 5 if low is None else low
    return ReturnEstimate(episodes=episodes, mean=mean, iqm=mean, ci_low=bottom, ci_high=mean + 5)


def proof(**changes: Any) -> Proof:
    base = {
        "job": "t",
        "algorithm": "ppo",
        "environment": "CartPole-v1",
        "seed": 0,
        "step": 1000,
        "total_steps": 1000,
        "world_size": 3,
        "attempts": 1,
        "artifact_uri": f"learnloop://ns/{DIGEST}",
        "artifact_sha256": DIGEST,
        "artifact_bytes": 10,
        "checkpoint_sha256": "b" * 64,
        "baseline": returns(22.0),
        "evaluation": returns(480.0),
        "parity": Parity(observations=9, recorded=9, max_abs_difference=0, action_agreement=1, passed=True),
        "wall_seconds": 9.0,
        "created_at": NOW,
    }
    return Proof.model_validate(base | changes)


def plan(snapshot: TrainingSnapshot) -> Plan:
    """The next snapshot, with a status that the API server takes."""
    made = decide(snapshot, ALL)
    TrainingJobStatus.model_validate(made.status)
    return made


def reason(made: Plan, type_: str = "Ready") -> str:
    return str(condition(made, type_)["reason"])


def condition(made: Plan, type_: str) -> dict[str, Any]:
    return next(item for item in made.status["conditions"] if item["type"] == type_)


def after(snapshot: TrainingSnapshot, made: Plan, **changes: Any) -> TrainingSnapshot:
    """The situation as the next pass sees it when only the status was written."""
    import dataclasses

    return dataclasses.replace(snapshot, object={**snapshot.object, "status": made.status}, **changes)
