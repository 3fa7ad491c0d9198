"""The quickstart's training on each backend of BACKEND, whose operator and ranks are killed, drained and resized."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.settings import ROOT
from testing.real_cluster.cluster_actions import Json, World, learnloop

BACKENDS = tuple(
    pytest.param(name, marks=[pytest.mark.trainer] if name == "trainjob" else [])
    for name in os.environ.get("BACKEND", "job,trainjob").split(",")
)
"""A list with commas. By default the one that needs nothing, and Trainer: PyTorchJobs are in every other test."""
STEPS = 400_000
"""Twice the quickstart's, so that there is time to be killed in."""


def quickstart(backend: str) -> Json:
    """A TrainingJob by the quickstart's template."""
    documents = yaml.safe_load_all((ROOT / "examples" / "quickstart" / "quickstart.yaml").read_text(encoding="utf-8"))
    agent = next(item for item in documents if item["kind"] == "LearningAgent")
    template: dict[str, Any] = agent["spec"]["training"]["template"]
    changed = {"backend": backend, "workers": 0 if backend == "job" else 1, "totalSteps": STEPS}
    data = {"environment": agent["spec"]["task"]["environment"]["name"]}
    return learnloop("TrainingJob", "run", {**template, **changed, "checkpoint": {"everySeconds": 1}, "data": data})


def kill_9(world: World, namespace: str) -> str:
    """The main process of one rank, as the machine's own kernel may end it. Returns the pod's name."""
    pods = world.api.pods(namespace, "learnloop.dev/training-job=run")
    rank = next(pod for pod in pods if pod["status"]["phase"] == "Running")
    uid = str(rank["metadata"]["uid"])
    for place in Path("/proc").glob("[0-9]*"):
        try:
            ours = uid in (place / "cgroup").read_text() or uid.replace("-", "_") in (place / "cgroup").read_text()
            if ours and b"learnloop_trainer" in (place / "cmdline").read_bytes():
                os.kill(int(place.name), signal.SIGKILL)
                return str(rank["metadata"]["name"])
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError(f"no process of pod {rank['metadata']['name']} on this machine")


@pytest.mark.disturbs
@pytest.mark.skipif(bool(os.environ.get("CONTEXT")), reason="the ranks' processes are on another machine")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_quickstarts_training_outlives_kill_9_of_the_operator_and_of_a_rank(
    world: World, namespace: str, backend: str
) -> None:
    def step() -> int:
        return int(world.status(namespace, "trainingjobs", "run").get("step") or 0)

    world.apply(namespace, quickstart(backend))
    world.until("progress", lambda: step() >= 30_000, 240)
    world.kill_operator()
    before = world.until("progress told by the next operator", lambda: step() if step() >= 60_000 else None, 120)
    kill_9(world, namespace)

    status = world.phase(namespace, "trainingjobs", "run", "Validated", seconds=400)
    # The training operator makes a lost pod anew, and the ranks meet again; the others end with their first lost pod.
    attempts = 1 if backend == "pytorchjob" else 2
    assert (status["backend"], status["attempts"]) == (backend, attempts)
    assert status["evaluation"]["mean"] >= 400
    assert before >= 60_000
    gangs = {"job": "jobs", "trainjob": "trainjobs", "pytorchjob": "pytorchjobs"}
    notes = world.api.run(
        "get", gangs[backend], "-n", namespace, "run", "-o", r"jsonpath={.metadata.annotations.learnloop\.dev/attempt}"
    )
    assert notes == str(attempts - 1)
    logs = world.api.run("logs", "-n", namespace, "-l", "learnloop.dev/training-job=run", "--tail=-1")
    assert "resum" in logs.lower(), "the gang started over instead of resuming from its checkpoint"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gang_that_is_drained_and_resized_goes_on_from_its_checkpoint_and_costs_no_attempt(
    world: World, namespace: str, backend: str
) -> None:
    def status() -> Json:
        return world.status(namespace, "trainingjobs", "run")

    def step() -> int:
        return int(status().get("step") or 0)

    world.apply(namespace, quickstart(backend))
    world.until("progress", lambda: step() >= 60_000, 240)
    pods = world.api.pods(namespace, "learnloop.dev/training-job=run")
    name = pods[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    world.api.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    world.until("the disruption on record", lambda: status().get("preemptions") == 1, 60)
    if backend != "job":
        world.until("progress of the next gang", lambda: step() >= 120_000, 240)
        assert status()["worldSize"] == 2
        world.api.run("patch", "tjob", "run", "-n", namespace, "--type=merge", "-p", '{"spec": {"workers": 0}}')
    ended = world.phase(namespace, "trainingjobs", "run", "Validated", seconds=400)
    assert (ended["attempts"], ended["preemptions"], ended["backend"]) == (1, 1, backend)
    assert ended["worldSize"] == 1
    assert ended["evaluation"]["mean"] >= 400
    logs = world.api.run("logs", "-n", namespace, "-l", "learnloop.dev/training-job=run", "--tail=-1")
    assert "resum" in logs.lower(), "the gang started over instead of resuming from its checkpoint"
