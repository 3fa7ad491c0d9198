"""`learnloop local up`: the whole loop as processes of one machine."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo import bad_model, learning
from demo.narrator import Narrator
from demo.one_machine import small_quickstart
from demo.settings import Settings
from demo.waiting import until as until_some
from testing.servers.one_machine import HACK, OneMachine, one_machine
from testing.waiting import SECONDS, until

AGENT = Path(__file__).parents[3] / "examples" / "external-agent"
SETTINGS = Settings(context=None, namespace="default", values=(), keep=False)
STRANGE = """{apiVersion: apps/v1, kind: Deployment, metadata: {name: strange}, spec: {replicas: 1, template:
 {metadata: {labels: {name: strange}}, spec: {containers: [{name: main, image: IMAGE, resources: RESOURCES}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: there}, data: {file: text}}"""
VOLUMES = "{}}], volumes: [{name: a, configMap: {name: gone}}, {name: b, configMap: {name: there}"


@pytest.fixture(scope="module")
def machine() -> Iterator[OneMachine]:
    with one_machine() as started:
        yield started


def test_nothing_outlives_a_killed_make_try() -> None:
    with one_machine(str(HACK / "try")) as machine:
        machine.process.kill()
        until(lambda: not machine.left())


@pytest.mark.timeout(900)
def test_a_policy_is_trained_and_promoted_and_a_bad_one_rolled_back(machine: OneMachine) -> None:
    *others, agent = yaml.safe_load_all(small_quickstart(SETTINGS))
    agent["spec"]["task"]["environment"]["actors"]["maxStepsPerSecond"] = 500
    # At 10 % a canary's few episodes would wait for ten times as many.
    agent["spec"]["deployment"]["template"]["rollout"]["steps"] = [{"weight": 50, "minEpisodes": 6}, {"weight": 100}]
    machine.api.run("apply", "-n", "default", "-f", "-", stdin=yaml.safe_dump_all([*others, agent]))
    name = until_some("a run", lambda: learning.newest_job(machine.api, SETTINGS), 240)
    job = until_some("a proof", lambda: learning.finished(machine.api, SETTINGS, Narrator(), name), 240)
    model = job["status"]["artifact"]
    until_some("promotion", lambda: learning.promoted(machine.api, SETTINGS, Narrator(), model["uri"]), 240)
    back = bad_model.watch_it_come_back(machine.api, SETTINGS, Narrator(), model["uri"], model["sha256"])
    assert back.max_weight <= 50
    status, text = machine.ends("why", "cartpole")
    assert status == 0
    assert "RolledBack" in text
    machine.kill("learnloop_serving")
    servers = "learnloop.dev/model-deployment=cartpole"
    until(lambda: any(one["restartCount"] and one["ready"] for one in machine.containers(servers)))


def test_a_program_of_the_user_plays_an_agent(machine: OneMachine) -> None:
    machine.api.run("apply", "-n", "default", "-f", str(AGENT / "external-agent.yaml"))
    settings = machine.folder / "local" / "run" / "default.balancer.env"
    until(settings.exists)
    play = f"source {settings}; exec {sys.executable} {AGENT / 'agent.py'} --episodes 3"
    assert subprocess.run(["bash", "-c", play], timeout=SECONDS, check=False).returncode == 0
    until(lambda: machine.api.custom("default", "learningagents", "balancer")["status"].get("rewarded", 0) >= 3)


@pytest.mark.parametrize(
    ("image", "resources", "reason"),
    [
        ("nginx", "{}", "nginx: one machine runs learnloop's own parts"),
        ("learnloop.local/serving", "{limits: {nvidia.com/gpu: 1}}", "nvidia.com/gpu: pods get no devices"),
        ("learnloop.local/serving", VOLUMES, 'configmap "gone" not found'),
    ],
)
def test_a_pod_that_needs_a_cluster_waits_and_says_for_what(machine, image, resources, reason):
    text = STRANGE.replace("IMAGE", image).replace("RESOURCES", resources)
    machine.api.run("apply", "-n", "default", "-f", "-", stdin=text)
    until(lambda: reason in str(machine.containers("name=strange")))


def test_no_other_user_takes_part(machine: OneMachine) -> None:
    state = machine.folder / "local"
    assert [path for path in state.iterdir() if path.stat().st_mode & 0o077] == []
    listen = re.search(r"127.0.0.1:(\d+)", (state / "run" / "nats.conf").read_text())
    with socket.create_connection(("127.0.0.1", int(listen[1]))) as client:
        assert b'"auth_required":true' in client.recv(4096)


def test_a_second_one_is_refused_and_nothing_outlives_a_killed_one(machine: OneMachine) -> None:
    status, text = machine.ends("up")
    assert status == 1
    assert "another `learnloop local up` runs there" in text
    machine.process.kill()
    until(lambda: not machine.left("learnloop") and not machine.left("nats"))
