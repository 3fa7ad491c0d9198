"""The process as the pod runs it."""

import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from learnloop_api import names
from learnloop_common import http_server
from learnloop_serving.server import CONNECTIONS
from testing.servers.policy_servers import STABLE, clean_environment, table, write_policy
from testing.servers.ports import held_port


def environment(tmp_path: Path, uri: str, digest: str = "", **extra: str) -> dict[str, str]:
    (tmp_path / "routing.json").write_text(table((STABLE, "stable", 100)))
    return clean_environment(
        LEARNLOOP_MODEL_DEPLOYMENT="cart",
        LEARNLOOP_REVISION=STABLE,
        LEARNLOOP_MODEL_URI=uri,
        LEARNLOOP_MODEL_SHA256=digest,
        LEARNLOOP_ROUTING_FILE=str(tmp_path / "routing.json"),
        LEARNLOOP_TERMINATION_LOG=str(tmp_path / "termination-log"),
        LEARNLOOP_DRAIN_SECONDS="0.6",
        LEARNLOOP_HOST="127.0.0.1",
        **extra,
    )


def test_the_process_serves_drains_on_sigterm_and_exits_cleanly(tmp_path: Path) -> None:
    digest = write_policy(tmp_path / "m.onnx")
    with held_port() as port:
        for seconds in ("0.6", "6", "60"):
            try:
                return _serves_and_drains(environment(tmp_path, (tmp_path / "m.onnx").as_uri(), digest), port, seconds)
            except httpx.TransportError:
                continue  # this machine is so busy that the drain was over before it could be seen
    pytest.fail("a draining server does not answer")


def _serves_and_drains(base: dict[str, str], port: int, seconds: str) -> None:
    env = base | {"LEARNLOOP_PORT": str(port), "LEARNLOOP_DRAIN_SECONDS": seconds}
    process = subprocess.Popen([sys.executable, "-m", "learnloop_serving"], env=env, stderr=subprocess.PIPE)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            _wait_ready(client)
            opened = client.post("/v1/episodes", json={}).json()
            assert set(http_server.HEADERS) <= set(client.get("/readyz").headers.items())
            process.send_signal(signal.SIGTERM)
            while client.get("/readyz").status_code == 200:
                time.sleep(0.03)
            assert client.get("/readyz").json() == {"status": "draining"}
            late = client.post(f"/v1/episodes/{opened['episode_id']}/act", json={"observation": [1, 0, 0, 0]})
            assert (late.status_code, late.headers["connection"]) == (200, "close")
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.communicate()


def _wait_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.03)
    raise AssertionError("the server did not become ready")


def test_a_flood_of_sockets_takes_no_probe_away(tmp_path: Path) -> None:
    digest = write_policy(tmp_path / "m.onnx")
    with held_port() as port, held_port() as probes, ExitStack() as stack:
        ports = {"LEARNLOOP_PORT": str(port), names.ENV_PROBES_PORT: str(probes)}
        env = environment(tmp_path, (tmp_path / "m.onnx").as_uri(), digest, **ports)
        process = subprocess.Popen([sys.executable, "-m", "learnloop_serving"], env=env, stderr=subprocess.DEVNULL)
        stack.callback(process.wait, 120)
        stack.callback(process.kill)
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{probes}", timeout=60))
        _wait_ready(client)
        assert "learnloop_" in client.get("/metrics").text
        assert client.post("/v1/episodes", json={}).status_code == 404, "the port of probes takes no episode"
        assert httpx.post(f"http://127.0.0.1:{port}/v1/episodes", json={}).status_code == 200
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 503
        for path in ("/healthz", "/readyz", "/metrics"):
            assert client.get(path).status_code == 200


def test_a_model_that_cannot_be_loaded_leaves_one_sentence_and_exit_status_1(tmp_path: Path) -> None:
    write_policy(tmp_path / "m.onnx")
    env = environment(tmp_path, (tmp_path / "m.onnx").as_uri(), "0" * 64, LEARNLOOP_PORT="0")
    done = subprocess.run([sys.executable, "-m", "learnloop_serving"], env=env, capture_output=True, timeout=120)
    assert done.returncode == 1
    sentence = (tmp_path / "termination-log").read_text()
    assert re.fullmatch(r"sha256: file://\S+ has [0-9a-f]{64}, expected 0{64}\n", sentence)
    assert b"Traceback" not in done.stderr


def test_a_key_of_the_episodes_that_cannot_be_read_leaves_one_sentence_and_exit_status_1(tmp_path: Path) -> None:
    missing = str(tmp_path / "key")
    env = environment(tmp_path, "uniform://discrete/2", LEARNLOOP_PORT="0", LEARNLOOP_EPISODE_KEY_FILE=missing)
    done = subprocess.run([sys.executable, "-m", "learnloop_serving"], env=env, capture_output=True, timeout=120)
    assert done.returncode == 1
    sentence = (tmp_path / "termination-log").read_text()
    assert sentence == f"LEARNLOOP_EPISODE_KEY_FILE: {missing} cannot be read: No such file or directory\n"
    assert b"Traceback" not in done.stderr
