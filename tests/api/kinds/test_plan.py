"""`kubectl learnloop plan` before a real API server: its validation is the answer, and nothing is stored."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest

from learnloop_operator.cli import main
from testing.proxies.service_proxy_target import behind_service, own_address

GOOD = """
apiVersion: learnloop.dev/v1alpha1
kind: ModelDeployment
metadata: {name: planned}
spec:
  model: {uri: "uniform://discrete/2?observations=4"}
"""


def plan(api_server: Path, namespace: str, file: Path, *more: str) -> int:
    return main.main(["--kubeconfig", str(api_server), "-n", namespace, "plan", "-f", str(file), *more])


def test_a_plan_is_checked_by_the_api_server_and_stores_nothing(
    api_server: Path, kube: Any, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(GOOD)
    assert plan(api_server, namespace, file) == 0
    said = capsys.readouterr().out
    assert "the first model: it serves as soon as its pods can" in said
    assert f"{namespace}/planned: would be new; nothing was written" in said
    listed = kube.call("GET", f"/apis/learnloop.dev/v1alpha1/namespaces/{namespace}/modeldeployments")
    assert listed["items"] == []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("  rollout: {steps: [{weight: 10}]}", "the last step must have weight 100: add `- weight: 100`"),
        ("  rolout: {}", "spec.rolout: field not declared in schema"),
        ("  serving: {replicas: -1}", "spec.serving.replicas"),
    ],
)
def test_an_invalid_file_is_refused_with_the_field(
    api_server: Path, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, refusal: str
) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(GOOD + change + "\n")
    assert plan(api_server, namespace, file) == 1
    assert refusal in capsys.readouterr().err


def test_a_prometheus_that_is_not_there_is_named_with_the_way_out(
    api_server: Path, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(GOOD)
    assert plan(api_server, namespace, file, "--last", "1h") == 1
    said = capsys.readouterr().err
    assert "Service learnloop-system/learnloop-prometheus:http through the API server" in said
    assert "--prometheus URL" in said


class Record(BaseHTTPRequestHandler):
    """A Prometheus with an empty record that keeps what it was asked."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def prometheus(kube: Any, namespace: str) -> Iterator[str]:
    """NAMESPACE/NAME:PORT of a Service whose one endpoint is a server of the test's own."""
    address = own_address()
    server = ThreadingHTTPServer((address, 0), Record)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield behind_service(kube, namespace, "prometheus", address, server.server_address[1], "/ready")
    server.shutdown()


def test_the_record_is_read_through_the_api_servers_proxy(
    api_server: Path, namespace: str, prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(GOOD)
    done = plan(api_server, namespace, file, "--last", "1h", "--prometheus-service", prometheus)
    told = capsys.readouterr()
    assert done == 0, told.err
    assert f"no rollout of {namespace}/planned is on record in the last 1:00:00" in told.out
    path, _, query = Record.asked[-1].partition("?")
    assert path == "/api/v1/query_range"
    assert f'namespace="{namespace}", model_deployment="planned"' in parse_qs(query)["query"][0]
