"""The whole operator process against a real API server, with a real policy server for a pod and no Prometheus left."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from learnloop_api import names
from learnloop_common.acting.policy import PolicyError
from learnloop_serving.policy_loader import UniformPolicy
from testing.servers.policy_servers import LiveServer, table

T = TypeVar("T")
MD = "cart"
NO_SERIES = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).encode()


class Brittle(UniformPolicy):
    """A policy that cannot stand an observation of sevens."""

    def run(self, observation):
        if np.all(observation == 7.0):
            raise PolicyError("seven")
        return super().run(observation)


class NoEpisodesYet(BaseHTTPRequestHandler):
    """Prometheus before anything was scraped; while it is `stuck` it takes a question and says nothing."""

    stuck = threading.Event()

    def do_POST(self) -> None:
        while self.stuck.is_set():
            time.sleep(0.1)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", str(len(NO_SERIES)))
        self.end_headers()
        self.wfile.write(NO_SERIES)

    def log_message(self, *_) -> None:
        """Quiet."""


@pytest.fixture
def prometheus() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), NoEpisodesYet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    NoEpisodesYet.stuck.clear()
    server.server_close()


@pytest.fixture
def operator(
    api_server: Path, namespace: str, prometheus: ThreadingHTTPServer, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "KUBECONFIG": str(api_server),
        "LEARNLOOP_WATCH_NAMESPACE": namespace,  # others are left by the tests before
        "LEARNLOOP_SYSTEM_NAMESPACE": namespace,
        "LEARNLOOP_PROMETHEUS_URL": f"http://127.0.0.1:{prometheus.server_port}",
        "LEARNLOOP_DATA_URL": "http://127.0.0.1:9",
        "LEARNLOOP_PORT": "0",
    }
    log = tmp_path / "operator.log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "learnloop_operator"], env=environment, stderr=file)
    yield process
    process.terminate()
    process.wait(30)
    print(log.read_text()[-20_000:])  # pytest shows it where the test failed


class Cluster:
    """The ModelDeployment, and what kubelets and controllers would do for it."""

    def __init__(self, kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace

    def object(self, api: str, kind: str, name: str) -> dict:
        return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}}

    def model(self, uri: str, **spec) -> None:
        manifest = self.object(names.API_VERSION, "ModelDeployment", MD)
        self.kube.apply({**manifest, "spec": {"model": {"uri": uri}, **spec}}, force=True)

    @property
    def status(self) -> dict:
        deployment = self.kube.get(self.object(names.API_VERSION, "ModelDeployment", MD))
        status = deployment.get("status") or {}
        return status

    def weights(self) -> dict[str, int]:
        data = self.kube.get(self.object("v1", "ConfigMap", f"{MD}-routing"))["data"]
        return {arm["role"]: arm["weight"] for arm in json.loads(data["routing.json"])["arms"]}

    def arms(self) -> dict[str, int]:
        """Weights by revision."""
        data = self.kube.get(self.object("v1", "ConfigMap", f"{MD}-routing"))["data"]
        return {arm["revision"]: arm["weight"] for arm in json.loads(data["routing.json"])["arms"]}

    def condition(self, kind: str) -> tuple[str, str]:
        conditions = {item["type"]: (item["status"], item["reason"]) for item in self.status.get("conditions") or ()}
        return conditions.get(kind, ("", ""))

    def replica_set(self, revision: str) -> None:
        """The ReplicaSet of the Deployment controller; its pod becomes one of it."""
        deployment = self.kube.get(self.object("apps/v1", "Deployment", f"{MD}-{revision}"))
        made = self.object("apps/v1", "ReplicaSet", f"{MD}-{revision}-0badc0de")
        made["metadata"]["labels"] = deployment["metadata"]["labels"]
        made["metadata"]["ownerReferences"] = [_controller(deployment, "apps/v1", "Deployment")]
        template, selector = deployment["spec"]["template"], deployment["spec"]["selector"]
        made = self.kube.create({**made, "spec": {"replicas": 1, "selector": selector, "template": template}})
        pod = self.object("v1", "Pod", f"{MD}-{revision}-0")
        owners = [_controller(made, "apps/v1", "ReplicaSet")]
        self.kube.merge(pod, {"metadata": {"ownerReferences": owners}})

    def pod(self, revision: str, address: str, name: str = "0") -> None:
        labels = {names.LABEL_DEPLOYMENT: MD, names.LABEL_REVISION: revision, names.LABEL_COMPONENT: "policy-server"}
        pod = self.object("v1", "Pod", f"{MD}-{revision}-{name}")
        pod["metadata"]["labels"] = labels
        self.kube.create({**pod, "spec": {"containers": [{"name": "server", "image": "server"}]}})
        ready = [{"type": "Ready", "status": "True"}]
        self.kube.merge(pod, {"status": {"podIP": address, "phase": "Running", "conditions": ready}}, "status")

    def arm_ready(self, revision: str) -> None:
        deployment = self.object("apps/v1", "Deployment", f"{MD}-{revision}")
        self.kube.merge(deployment, {"status": {"replicas": 1, "readyReplicas": 1}}, "status")


def _controller(owner, version: str, kind: str) -> dict:
    metadata = owner["metadata"]
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


LANE_SECONDS = 30.0
"""By then the lane has acted however busy the machine is, and nothing else could have: Prometheus is gone or stuck."""


def until(what: str, look: Callable[[], T], seconds: float = 90.0) -> T:
    """Polls until `look` gives something true; what is not there yet counts as not true."""
    deadline, last = time.monotonic() + seconds, None
    while True:
        try:
            if state := look():
                return state
        except Exception as error:
            last = error
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s; {last!r}"
        time.sleep(0.05)


@pytest.fixture
def canary(kube, namespace: str, operator: subprocess.Popen[bytes]) -> Iterator[tuple[Cluster, LiveServer]]:
    """A canary at 10 % with a real policy server behind it."""
    cluster = Cluster(kube, namespace)
    first = _serve(cluster)
    cluster.model("uniform://discrete/3?observations=4", analysis={"intervalSeconds": 60})
    revision = until("a canary", lambda: str(cluster.status["canary"]["revision"]))
    server = _pod_of(cluster, revision, table((first, "stable", 90), (revision, "canary", 10)))
    until("the canary's Deployment", lambda: kube.get(cluster.object("apps/v1", "Deployment", f"{MD}-{revision}")))
    cluster.arm_ready(revision)
    until("the first step", lambda: cluster.weights().get("canary") == 10)
    yield cluster, server
    server.stop()


def _serve(cluster: Cluster) -> str:
    """The revision of the first model, once it serves."""
    cluster.model("uniform://discrete/2?observations=4")
    until("the first arm", lambda: cluster.kube.get(cluster.object("v1", "ConfigMap", f"{MD}-routing")))
    first = until("its Deployment", lambda: _first_arm(cluster))
    cluster.arm_ready(first)
    until("serving", lambda: cluster.status["phase"] == "Healthy")
    return first


def _pod_of(cluster: Cluster, revision: str, routing, name: str = "0") -> LiveServer:
    """A real policy server as a pod with an arm's labels."""
    source = random.Random(f"{os.getpid()} {revision} {name}")
    address = f"127.{source.randint(1, 254)}.{source.randint(1, 254)}.{source.randint(2, 254)}"
    server = LiveServer(revision=revision, policy=Brittle(3, 4), port=names.PORT_PROBES, host=address).start()
    server.route(routing)
    cluster.pod(revision, address, name)
    return server


def _first_arm(cluster: Cluster) -> str:
    deployments = cluster.kube.call("GET", f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments")["items"]
    return str(deployments[0]["metadata"]["labels"][names.LABEL_REVISION]) if deployments else ""


def act(server: LiveServer, times: int, value: float) -> int:
    """The status of the last of `times` requests for an action, each in an episode of its own."""
    episodes = [server.opened() for _ in range(times)]
    answers = [server.post(f"/v1/episodes/{episode}/act", {"observation": [value] * 4}) for episode in episodes]
    return answers[-1].status_code


def failing(server: LiveServer, look: Callable[[], bool]) -> Callable[[], bool]:
    """The look, while the model goes on failing: of what a pod counted before it was first read the lane asks nothing,
    and on a busy machine that may be a while after its condition says that it reads."""

    def fail_and_look() -> bool:
        act(server, 5, 7.0)
        return look()

    return fail_and_look


def test_with_prometheus_gone_a_failing_model_is_rolled_back_within_seconds(canary, prometheus):
    cluster, server = canary
    until("the lane", lambda: cluster.condition("FastLane") == ("True", "Reading"))
    prometheus.shutdown()
    prometheus.server_close()
    assert act(server, 100, 1.0) == 200
    time.sleep(2.5)
    assert cluster.weights()["canary"] == 10, "a good model was rolled back"
    assert act(server, 20, 7.0) == 500
    until("weight 0", failing(server, lambda: "canary" not in cluster.weights()), LANE_SECONDS)
    block = until("the verdict", lambda: cluster.status["blockedRevision"])
    assert (block["revision"], block["reason"]) == (server.revision, "GrossBreach")
    assert "requests to the canary failed; bar at most 0.05; read from its own pods" in block["message"]


def test_a_strangers_pod_with_the_canarys_labels_decides_nothing(canary: tuple[Cluster, LiveServer]) -> None:
    """F5: the lane read whatever carried the labels, and rolled back a good canary for it."""
    cluster, server = canary
    cluster.replica_set(server.revision)
    routing = table((_first_arm(cluster), "stable", 90), (server.revision, "canary", 10))
    stranger = _pod_of(cluster, server.revision, routing, "stranger")
    try:
        until("the lane", lambda: cluster.condition("FastLane") == ("True", "Reading"))
        for _ in range(8):
            assert act(server, 20, 1.0) == 200
            assert act(stranger, 20, 7.0) == 500
            time.sleep(1.0)
        assert cluster.weights().get("canary") == 10
        until("weight 0", failing(server, lambda: "canary" not in cluster.weights()), LANE_SECONDS)
    finally:
        stranger.stop()


def test_nobody_waits_for_a_prometheus_that_is_stuck(canary: tuple[Cluster, LiveServer]) -> None:
    cluster, server = canary
    NoEpisodesYet.stuck.set()
    cluster.model("uniform://discrete/3?observations=4", analysis={"intervalSeconds": 1})
    until("what is held up", lambda: cluster.condition("DataAvailable")[1].startswith("Provider"), 30.0)
    for _ in range(3):
        assert act(server, 20, 1.0) == 200
        time.sleep(1.0)
    assert cluster.weights()["canary"] == 10
    assert act(server, 40, 7.0) == 500
    until("weight 0", failing(server, lambda: "canary" not in cluster.weights()), LANE_SECONDS)


def test_a_canary_that_cannot_be_read_says_so_and_stays(canary: tuple[Cluster, LiveServer]) -> None:
    cluster, server = canary
    server.stop()
    until("the condition", lambda: cluster.condition("FastLane") == ("False", "PodsUnreachable"), 30.0)
    version = cluster.kube.get(cluster.object(names.API_VERSION, "ModelDeployment", MD))["metadata"]["resourceVersion"]
    time.sleep(4.0)
    after = cluster.kube.get(cluster.object(names.API_VERSION, "ModelDeployment", MD))["metadata"]["resourceVersion"]
    assert (after, cluster.weights()["canary"]) == (version, 10)


def test_with_prometheus_gone_a_failing_arm_of_an_experiment_is_withdrawn_within_seconds(
    kube, namespace: str, operator: subprocess.Popen[bytes], prometheus: ThreadingHTTPServer
) -> None:
    cluster = Cluster(kube, namespace)
    first = _serve(cluster)
    arms = [
        {"name": name, "uri": f"uniform://discrete/{actions}?observations=4", "weight": 30}
        for name, actions in (("good", 3), ("bad", 4))
    ]
    cluster.model("uniform://discrete/2?observations=4", experiment={"arms": arms})
    until("the arms", lambda: len(cluster.status["experiment"]["arms"]) == 3)
    good, bad = (arm["revision"] for arm in cluster.status["experiment"]["arms"][1:])
    routing = table((first, "stable", 40), (good, "canary", 30), (bad, "canary", 30))
    servers = [_pod_of(cluster, revision, routing) for revision in (good, bad)]
    try:
        for revision in (good, bad):
            until("its Deployment", lambda: kube.get(cluster.object("apps/v1", "Deployment", f"{MD}-{revision}")))  # noqa: B023
            cluster.arm_ready(revision)
        until("the split", lambda: cluster.arms() == {first: 40, good: 30, bad: 30})
        until("the lane", lambda: cluster.condition("FastLane") == ("True", "Reading"))
        prometheus.shutdown()
        prometheus.server_close()
        assert [act(server, 50, 1.0) for server in servers] == [200, 200]
        time.sleep(2.5)
        assert act(servers[1], 30, 7.0) == 500
        withdrawn = failing(servers[1], lambda: cluster.arms() == {first: 70, good: 30})
        until("the other arms alone", withdrawn, LANE_SECONDS)
        message = until("the verdict", lambda: cluster.status["experiment"]["arms"][2]["message"])
        assert "requests to bad failed; bar at most 0.05; read from its own pods" in message
    finally:
        for server in servers:
            server.stop()
