"""The quickstart's training on each backend of BACKEND, and everything that can befall it on a real node."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.settings import ROOT, SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Json, World, learnloop

BACKENDS = tuple(
    pytest.param(name, marks=[pytest.mark.trainer] if name == "trainjob" else [])
    for name in os.environ.get("BACKEND", "job,pytorchjob,trainjob").split(",")
)
"""A list with commas."""
STEPS = 1_600_000
"""Eight times the quickstart's, by half a core: there has to be time to be killed in."""


def quickstart(backend: str) -> Json:
    """A TrainingJob by the quickstart's template."""
    documents = yaml.safe_load_all((ROOT / "examples" / "quickstart" / "quickstart.yaml").read_text(encoding="utf-8"))
    agent = next(item for item in documents if item["kind"] == "LearningAgent")
    template: dict[str, Any] = agent["spec"]["training"]["template"]
    changed: Json = {"backend": backend, "workers": 0 if backend == "job" else 1, "totalSteps": STEPS}
    data = {"environment": agent["spec"]["task"]["environment"]["name"]}
    changed |= {"checkpoint": {"everySeconds": 1}, "pod": {"resources": {"limits": {"cpu": "500m"}}}}
    return learnloop("TrainingJob", "run", {**template, **changed, "data": data})


def kill_9(world: World, namespace: str) -> str:
    """The main process of one rank, as the machine's own kernel may end it. Returns the pod's name; "" without one."""
    pods = world.api.pods(namespace, "learnloop.dev/training-job=run")
    rank = next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)
    if rank is None:
        return ""
    uid = str(rank["metadata"]["uid"])
    for place in Path("/proc").glob("[0-9]*"):
        try:
            ours = uid in (place / "cgroup").read_text() or uid.replace("-", "_") in (place / "cgroup").read_text()
            if ours and b"learnloop_trainer" in (place / "cmdline").read_bytes():
                os.kill(int(place.name), signal.SIGKILL)
                return str(rank["metadata"]["name"])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ""


def evict_one(world: World, namespace: str) -> None:
    """As a node that is drained does."""
    name = world.api.pods(namespace, "learnloop.dev/training-job=run")[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    world.api.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


@pytest.mark.disturbs
@pytest.mark.skipif(bool(os.environ.get("CONTEXT")), reason="the ranks' processes are on another machine")
@pytest.mark.parametrize("backend", BACKENDS)
def test_training_outlives_a_drained_node_kill_9_of_everything_and_another_number_of_ranks(
    world: World, namespace: str, backend: str
) -> None:
    def status() -> Json:
        return world.status(namespace, "trainingjobs", "run")

    def step() -> int:
        return int(status().get("step") or 0)

    def progress(what: str) -> None:
        before = step()
        world.until(what, lambda: step() >= before + 30_000, 240)

    world.apply(namespace, quickstart(backend))
    progress("progress")
    evict_one(world, namespace)
    world.until("the disruption on record", lambda: status().get("preemptions") == 1, 60)
    progress("progress of the next gang")

    data_plane = ("-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=data-plane")
    world.api.run("delete", "pod", *data_plane, "--grace-period=0", "--force", "--wait=false")
    world.kill_operator()
    progress("progress that the next operator reports")
    world.until("a rank to kill", lambda: kill_9(world, namespace), 60)
    # The training operator replaces a lost pod, and the ranks meet again; the others end with their first lost pod.
    attempts = 1 if backend == "pytorchjob" else 2
    world.until("the attempt", lambda: status().get("attempts") == attempts, 120)
    progress("progress without the rank")
    if backend != "job":
        assert status()["worldSize"] == 2
        world.patch(namespace, "tjob", "run", {"spec": {"workers": 0}})

    ended = world.phase(namespace, "trainingjobs", "run", "Validated", seconds=400)
    assert (ended["backend"], ended["attempts"], ended["preemptions"]) == (backend, attempts, 1)
    assert ended["worldSize"] == 1
    assert ended["step"] >= STEPS
    assert ended["evaluation"]["mean"] >= 400
    logs = world.api.run("logs", "-n", namespace, "-l", "learnloop.dev/training-job=run", "--tail=-1")
    assert "resum" in logs.lower(), "the gang started over instead of resuming from its checkpoint"
