"""A study with a real API server and a real data plane; the trials' own progress is played."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from learnloop_api import names
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.errors import Invalid
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import TRAINING_JOB
from learnloop_operator.kube.kubernetes_events import EventRecorder
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.prometheus.client import Prometheus
from learnloop_operator.prometheus.gather_evidence import PrometheusEvidence
from learnloop_operator.prometheus.pod_counters import CounterReader
from learnloop_operator.reconcile.apply_plan import Applier
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.reconcile.training_job import TrainingJobController
from learnloop_operator.reconcile.work_queue import Services
from learnloop_operator.settings import Settings
from testing.operators.api_access import from_kubeconfig
from testing.servers.data_plane_server import listening, postgres
from testing.training.training_builders import proof

MERGE = "application/merge-patch+json"
SPEC = {
    "algorithm": "ppo",
    "totalSteps": 1000,
    "data": {"environment": "CartPole-v1"},
    "study": {
        "trials": 3,
        "parallelism": 2,
        "space": [
            {"parameter": "learningRate", "float": {"low": 0.001, "high": 0.1, "log": True}},
            {"parameter": "hidden", "layers": [[32], [64, 64]]},
        ],
        "pruner": {"type": "median", "startupTrials": 1, "warmup": 0},
    },
}


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with postgres() as url:
        yield url


class Searcher:
    """The TrainingJob controller, one object at a time; the test plays the trials."""

    def __init__(self, path: Path, namespace: str, url: str) -> None:
        self.namespace, self.writes = namespace, Counter[str]()
        connection = from_kubeconfig(path)
        self.kube = KubeClient(connection, written=lambda verb, kind: self.writes.update([f"{verb} {kind}"]))
        self.speak_to(url)

    def speak_to(self, url: str) -> None:
        """From now on the data plane is there."""
        self.url, self.data = url, DataPlane(url)
        lane = FastLaneReader(CounterReader(), OperatorMetrics(), lambda: datetime.now(UTC))
        services = Services(
            self.kube, self.data, PrometheusEvidence(Prometheus("http://127.0.0.1:9")), Settings(), lane
        )
        self.controller = TrainingJobController(services)
        self.applier = Applier(self.kube, self.data, EventRecorder(self.kube, "test"))

    async def begin(self, name: str, **changes) -> None:
        spec = {**SPEC, **changes}
        metadata = {"name": name, "namespace": self.namespace}
        await self.kube.create(
            {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": spec}
        )

    async def look(self, name: str, passes: int = 1) -> dict:
        for _ in range(passes):
            snapshot = await self.controller.gather(self.namespace, name)
            await self.applier.apply(TRAINING_JOB, snapshot, self.controller.decide(snapshot))
        status = (await self.kube.get(TRAINING_JOB, self.namespace, name))["status"]
        return status

    async def trials(self, name: str) -> dict:
        jobs = await self.kube.list(TRAINING_JOB, self.namespace, labels=f"{names.LABEL_STUDY}={name}")
        return {item["metadata"]["name"]: item for item in jobs}

    async def play(self, trial: str, status: dict) -> None:
        path = TRAINING_JOB.path(self.namespace, trial, "status")
        await self.kube.http.request("PATCH", path, body={"status": status}, content_type=MERGE)

    async def prove(self, trial: str, value: float) -> None:
        """The trial ends with this return, its proof durable."""
        sha256 = f"{int(trial.rsplit('t', 1)[1]) + 1:064x}"
        uri = f"learnloop://{self.namespace}/{sha256}"
        proven = proof(job=trial, artifact_sha256=sha256, artifact_uri=uri)
        headers = {names.HEADER_NAMESPACE: self.namespace, "content-type": "application/json"}
        path = f"{self.url}/api/v1/training/runs/{trial}/proof"
        async with httpx.AsyncClient(trust_env=False) as client:
            (await client.put(path, content=proven.model_dump_json(), headers=headers)).raise_for_status()
        figures = {"episodes": 100, "mean": value, "iqm": value, "ciLow": value, "ciHigh": value}
        ended = {
            "finishedAt": "2026-03-01T12:00:00Z",
            "artifact": {"uri": uri, "sha256": sha256},
            "validation": figures,
        }
        await self.play(trial, ended)


@pytest.fixture
async def searcher(api_server: Path, namespace: str, dsn: str, tmp_path: Path) -> AsyncIterator[Searcher]:
    with listening(dsn, tmp_path) as url:
        running = Searcher(api_server, namespace, url)
        yield running
        await running.data.close()
        await running.kube.close()


def ready(status: dict) -> dict:
    return next(item for item in status["conditions"] if item["type"] == "Ready")


async def test_a_study_makes_trials_prunes_one_and_becomes_what_the_best_one_proved(searcher, kubectl):
    await searcher.begin("s")
    await searcher.look("s", 4)
    trials = await searcher.trials("s")
    assert sorted(trials) == ["s-t0", "s-t1"]
    first = trials["s-t0"]
    assert 0.001 <= first["spec"]["hyperparameters"]["learningRate"] <= 0.1
    assert first["spec"]["hyperparameters"]["hidden"] in ([32], [64, 64])
    assert first["metadata"]["ownerReferences"][0]["name"] == "s"
    await searcher.play("s-t0", {"step": 300, "totalSteps": 1000, "recentReturn": _returns(200.0)})
    await searcher.look("s", 2)
    await searcher.prove("s-t0", 480.0)
    status = await searcher.look("s", 3)
    assert status["study"]["bestTrial"] == "s-t0"
    assert "1 of 3 trials done, 2 running; best 480.0: s-t0 with hidden" in ready(status)["message"]
    assert "s-t2" in await searcher.trials("s")

    await searcher.play("s-t1", {"step": 300, "totalSteps": 1000, "recentReturn": _returns(20.0)})
    await searcher.look("s", 3)
    assert (await searcher.trials("s"))["s-t1"]["spec"]["suspend"] is True
    await searcher.play("s-t1", {"conditions": [_condition("Suspended", "True")]})
    assert (await searcher.look("s", 2))["study"]["pruned"] == 1

    await searcher.prove("s-t2", 470.0)
    status = await searcher.look("s", 3)
    assert (status["phase"], status["artifact"]["sha256"]) == ("Validated", f"{1:064x}")
    line = kubectl("get", "tjob", "s", "-n", searcher.namespace, "-o", "wide")
    assert "Validated" in line
    assert "100%" in line
    assert "(best of 3 trials, s-t0)" in line
    before = searcher.writes.copy()
    await searcher.look("s", 3)
    assert searcher.writes == before
    assert (
        searcher.writes["create TrainingJob"] + searcher.writes["apply TrainingJob"] <= 5
    )  # the job, 3 trials, 1 stop


async def test_a_data_plane_and_an_operator_that_die_in_mid_study_double_no_trial(api_server, namespace, dsn, tmp_path):
    with listening(dsn, tmp_path) as url:
        first = Searcher(api_server, namespace, url)
        await first.begin("s")
        await first.look("s", 3)
        parameters = {name: item["spec"]["hyperparameters"] for name, item in (await first.trials("s")).items()}
    status = await first.look("s")
    assert ready(status)["reason"] == "DataPlaneUnavailable"
    await first.data.close()
    with listening(dsn, tmp_path) as url:
        second = Searcher(api_server, namespace, url)
        await second.look("s", 4)
        assert {
            name: item["spec"]["hyperparameters"] for name, item in (await second.trials("s")).items()
        } == parameters
        for number in range(3):
            await second.prove(f"s-t{number}", 400.0 + number)
            await second.look("s", 3)
        status = await second.look("s", 2)
        assert sorted(await second.trials("s")) == ["s-t0", "s-t1", "s-t2"]
        assert status["study"]["bestTrial"] == "s-t2"
        await second.data.close()
        await second.kube.close()
    await first.kube.close()


async def test_a_combination_the_api_server_refuses_is_a_failed_trial_and_too_many_of_them_end_the_study(searcher):
    wide = {"parameter": "minibatches", "int": {"low": 1000, "high": 1024}}
    few = {"environments": 4, "horizon": 4}
    study = {**SPEC["study"], "trials": 9, "parallelism": 1, "maxFailedTrials": 2, "space": [wide]}
    await searcher.begin("s", hyperparameters=few, study=study)
    refused = 0
    for _ in range(8):
        try:
            await searcher.look("s")
        except Invalid as error:
            refused += "lower minibatches" in str(error)
    status = await searcher.look("s")
    assert (refused, status["study"]["failed"], status["phase"]) == (2, 2, "Failed")
    assert ready(status)["message"].startswith("maxFailedTrials: 2: 2 of 9 trials done (2 failed)")
    assert not await searcher.trials("s")


def _returns(mean: float) -> dict:
    return {"episodes": 50, "mean": mean, "iqm": mean, "ciLow": mean, "ciHigh": mean}


def _condition(type_: str, status: str) -> dict:
    now = "2026-03-01T12:00:00Z"
    return {"type": type_, "status": status, "reason": type_, "message": "", "lastTransitionTime": now}
