"""Secrets and their readers, asked for from an API server by the stock client."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from learnloop_operator.cli import workloads
from learnloop_operator.cli.objects import CommandError, SecretReference
from learnloop_operator.cli.workloads import Workloads

ENV = [
    {"name": "LEARNLOOP_DATABASE_PASSWORD_FILE", "value": "/run/credentials/database-password"},
    {"name": "LEARNLOOP_ENCRYPTION_KEYS", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "keys"}}},
    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "data", "generation": 2},
    "spec": {
        "replicas": 1,
        "selector": {},
        "template": {"spec": {"terminationGracePeriodSeconds": 30, "containers": [{"name": "data", "env": ENV}]}},
    },
    "status": {"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1, "replicas": 1},
}
OBJECTS = {
    "/apis/apps/v1/namespaces/system/deployments/data": DEPLOYMENT,
    "/api/v1/namespaces/system/secrets/raw": {"data": {"key": base64.b64encode(b"\xff" * 32).decode()}},
}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = OBJECTS.get(self.path)
        body = json.dumps(found or {"kind": "Status", "code": 404}).encode()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PATCH = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def held() -> Iterator[Workloads]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
        yield Workloads(client.ApiClient(configuration), "system")
        server.shutdown()


def test_a_deployments_variables_are_values_or_places(held: Workloads) -> None:
    assert held.environment("data") == {
        "LEARNLOOP_DATABASE_PASSWORD_FILE": "/run/credentials/database-password",
        "LEARNLOOP_ENCRYPTION_KEYS": SecretReference("mine", "keys"),
        "POD": "",
    }
    assert held.environment("none") is None


def test_a_rollout_ends_when_pods_that_are_counted_no_longer_have_had_their_time(
    held: Workloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()
    # A clock of this module's own: threads of other tests sleep by the process's.
    monkeypatch.setattr(workloads, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    assert held.restart("Deployment", "data", 5.0)
    assert slept == [30.0]
    assert not held.restart("Deployment", "none", 5.0)


def test_raw_bytes_are_no_lines(held: Workloads) -> None:
    with pytest.raises(CommandError, match="raw bytes"):
        held.read("raw", "key")
