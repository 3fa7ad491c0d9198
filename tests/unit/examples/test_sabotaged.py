"""The sabotaged model of the demo, made by the script in the Job's own manifest."""

import hashlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import yaml

from learnloop_trainer.export.graph import build

ROOT = Path(__file__).resolve().parents[3]
JOB = yaml.safe_load((ROOT / "examples" / "sabotaged" / "job.yaml").read_text())
CONTAINER = JOB["spec"]["template"]["spec"]["containers"][0]


@pytest.fixture(scope="module")
def honest() -> bytes:
    """A policy as the trainer exports it: 4 observations, 2 actions."""
    random = np.random.default_rng(7)
    sizes = [(4, 16), (16, 2)]
    arrays = {}
    for layer, size in enumerate(sizes):
        arrays[f"policy.{layer}.weight"] = random.normal(size=size).astype(np.float32)
        arrays[f"policy.{layer}.bias"] = random.normal(size=size[1]).astype(np.float32)
    return build(arrays, "policy", "tanh", {"learnloop.algorithm": "ppo", "learnloop.job": "cartpole-1"})


class Artifacts(http.server.BaseHTTPRequestHandler):
    """The two artifact paths of the data plane, as its REST contract has them."""

    store: dict[str, bytes]

    def do_GET(self) -> None:
        body = self.store.get(self.path.rsplit("/", 1)[1])
        self._answer(200 if body is not None else 404, body or b"")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        digest = hashlib.sha256(body).hexdigest()
        assert self.headers["x-learnloop-sha256"] == digest
        self.store[digest] = body
        answer = {"uri": f"learnloop://demo/{digest}", "sha256": digest, "size_bytes": len(body)}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        assert self.headers["authorization"] == "Bearer proof"
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@pytest.fixture
def store(honest: bytes) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Address of an artifact server and what it holds."""
    held = {hashlib.sha256(honest).hexdigest(): honest}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Store", (Artifacts,), {"store": held}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", held
    server.shutdown()
    server.server_close()


def run(address: str, digest: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The Job's script with its fixed paths moved into `folder`."""
    (folder / "token").write_text("proof\n")
    script = CONTAINER["args"][0]
    script = script.replace("/var/run/secrets/learnloop.dev/token", str(folder / "token"))
    script = script.replace("/dev/termination-log", str(folder / "termination-log"))
    environment = {"LEARNLOOP_DATA_URL": address, "GOOD_SHA256": digest, "GOOD_URI": f"learnloop://demo/{digest}"}
    assert set(environment) == {item["name"] for item in CONTAINER["env"]}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_the_sabotaged_model_is_valid_and_does_the_opposite(
    store: tuple[str, dict[str, bytes]], honest: bytes, tmp_path: Path
) -> None:
    address, held = store
    done = run(address, hashlib.sha256(honest).hexdigest(), tmp_path)
    assert done.returncode == 0, done.stderr
    line = done.stdout.strip().splitlines()[-1]
    made = json.loads(line)
    assert made["uri"] == f"learnloop://demo/{made['sha256']}"
    assert (tmp_path / "termination-log").read_text() == line

    good, bad = (onnxruntime.InferenceSession(model) for model in (honest, held[made["sha256"]]))
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    action, logits = good.run(["action", "logits"], {"observation": observations})
    opposite, negated = bad.run(["action", "logits"], {"observation": observations})
    np.testing.assert_array_equal(negated, -logits)
    np.testing.assert_array_equal(opposite, 1 - action)
    assert [(item.name, item.type, item.shape) for item in bad.get_outputs()] == [
        (item.name, item.type, item.shape) for item in good.get_outputs()
    ]
    assert bad.get_modelmeta().custom_metadata_map == good.get_modelmeta().custom_metadata_map


def test_a_model_that_is_not_there_fails_the_job(store: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    done = run(store[0], "0" * 64, tmp_path)
    assert done.returncode != 0
    assert "404" in done.stderr
