"""The quickstart's training on the backends of BACKEND side by side, and all that can befall it on a real node."""

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from demo.settings import ROOT, SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Json, Rig, learnloop

BACKENDS = os.environ.get("BACKEND", "job,pytorchjob,trainjob").split(",")
"""A list with commas."""
STEPS = {"job": 1_400_000, "pytorchjob": 800_000, "trainjob": 800_000}
"""Several times the quickstart's, by half a core a rank: there has to be time to be killed in."""


def quickstart(backend: str) -> Json:
    """A TrainingJob by the quickstart's template, named like its backend."""
    documents = yaml.safe_load_all((ROOT / "examples" / "quickstart" / "quickstart.yaml").read_text(encoding="utf-8"))
    agent = next(item for item in documents if item["kind"] == "LearningAgent")
    template = agent["spec"]["training"]["template"]
    changed: Json = {"backend": backend, "workers": 0 if backend == "job" else 1, "totalSteps": STEPS[backend]}
    data = {"environment": agent["spec"]["task"]["environment"]["name"]}
    changed |= {
        "checkpoint": {"everySeconds": 1},
        "pod": {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "500m"}}},
    }
    return learnloop("TrainingJob", backend, {**template, **changed, "data": data})


class Run:
    """The TrainingJob of one backend."""

    def __init__(self, rig: Rig, namespace: str, backend: str) -> None:
        self.rig, self.namespace, self.backend = rig, namespace, backend

    def status(self) -> Json:
        return self.rig.status(self.namespace, "trainingjobs", self.backend)

    def pods(self) -> list[Json]:
        return self.rig.api.pods(self.namespace, f"learnloop.dev/training-job={self.backend}")

    def until(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        self.rig.until(f"{self.backend}: {what}", holds, seconds)

    def progresses(self) -> None:
        def step() -> int:
            return int(self.status().get("step") or 0)

        before = step()
        self.until("progress", lambda: step() >= before + 15_000, 240)

    def kill_9(self) -> bool:
        """The main process of one rank, as the machine's own kernel may end it. False where none runs."""
        rank = next((pod for pod in self.pods() if pod["status"]["phase"] == "Running"), None)
        if rank is None:
            return False
        uid = str(rank["metadata"]["uid"])
        for place in Path("/proc").glob("[0-9]*"):
            try:
                ours = uid in (place / "cgroup").read_text() or uid.replace("-", "_") in (place / "cgroup").read_text()
                if ours and b"learnloop_trainer" in (place / "cmdline").read_bytes():
                    os.kill(int(place.name), signal.SIGKILL)
                    return True
            except (FileNotFoundError, ProcessLookupError):
                continue
        return False

    def evict_one(self) -> None:
        """As a node that is drained does."""
        name = self.pods()[0]["metadata"]["name"]
        metadata = {"name": name, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction"
        self.rig.api.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def outlives_the_loss_of_ranks(self) -> None:
        self.progresses()
        self.evict_one()
        self.until("the disruption on record", lambda: self.status().get("preemptions") == 1, 60)
        self.progresses()
        self.until("a rank to kill", self.kill_9, 60)
        # The training operator replaces a lost pod, and the ranks meet again; the others end with their first lost pod.
        attempts = 1 if self.backend == "pytorchjob" else 2
        self.until("the attempt", lambda: self.status().get("attempts") == attempts, 120)
        self.progresses()
        if self.backend != "job":
            assert self.status()["worldSize"] == 2
            self.rig.patch(self.namespace, "tjob", self.backend, {"spec": {"workers": 0}})

        ended = self.rig.phase(self.namespace, "trainingjobs", self.backend, "Validated", seconds=400)
        assert (ended["backend"], ended["attempts"], ended["preemptions"]) == (self.backend, attempts, 1)
        assert ended["worldSize"] == 1
        assert ended["step"] >= STEPS[self.backend]
        assert ended["evaluation"]["mean"] >= 400
        selector = f"learnloop.dev/training-job={self.backend}"
        logs = self.rig.api.run("logs", "-n", self.namespace, "-l", selector, "--tail=-1")
        assert "resum" in logs.lower(), f"{self.backend} started over instead of resuming from its checkpoint"


@pytest.mark.disturbs
@pytest.mark.skipif(bool(os.environ.get("CONTEXT")), reason="the ranks' processes are on another machine")
@pytest.mark.parametrize(
    "backends",
    [pytest.param(BACKENDS, id="-".join(BACKENDS), marks=[pytest.mark.trainer] if "trainjob" in BACKENDS else [])],
)
def test_training_outlives_a_drained_node_kill_9_of_everything_and_another_number_of_ranks(rig, namespace, backends):
    rig.apply(namespace, *map(quickstart, backends))
    runs = [Run(rig, namespace, backend) for backend in backends]
    with ThreadPoolExecutor(len(runs)) as side_by_side:
        list(side_by_side.map(Run.progresses, runs))
        data_plane = ("-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=data-plane")
        rig.api.run("delete", "pod", *data_plane, "--grace-period=0", "--force", "--wait=false")
        rig.kill_operator()
        list(side_by_side.map(Run.outlives_the_loss_of_ranks, runs))
