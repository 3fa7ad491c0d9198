"""The sabotaged model of the demo, made by the script in the Job's own manifest."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest
import yaml

from learnloop_trainer.export.graph import build
from testing.servers.ports import held_port

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


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with held_port() as number:
        yield number


@pytest.fixture(scope="module")
def data_plane(honest: bytes, postgres: Any, tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[str]:
    """Address of a data plane that holds the honest model."""
    database = f"sabotaged_{os.getpid()}"
    postgres.psql(f"CREATE DATABASE {database};")
    environment = {
        **os.environ,
        "LEARNLOOP_DSN": str(postgres.get_uri(database)),
        "LEARNLOOP_ARTIFACTS": f"file://{tmp_path_factory.mktemp('artifacts')}",
        "LEARNLOOP_AUTH": "none",
        "LEARNLOOP_DRAIN_SECONDS": "0",
        "LEARNLOOP_HOST": "127.0.0.1",
        "LEARNLOOP_PORT": str(port),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "learnloop_dataplane"], env=environment, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while not ready(address):
            assert process.poll() is None, "the data plane ended"
            assert time.monotonic() < deadline, "the data plane does not get ready"
            time.sleep(0.1)
        headers = {"x-learnloop-sha256": hashlib.sha256(honest).hexdigest()}
        httpx.put(f"{address}/api/v1/artifacts", content=honest, headers=headers, timeout=60).raise_for_status()
        yield address
    finally:
        process.terminate()
        process.wait(timeout=60)


def ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def run(address: str, digest: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The Job's script with its fixed paths moved into `folder`."""
    (folder / "token").write_text("proof\n")
    script = CONTAINER["args"][0]
    script = script.replace("/var/run/secrets/learnloop.dev/token", str(folder / "token"))
    script = script.replace("/dev/termination-log", str(folder / "termination-log"))
    given = {"LEARNLOOP_DATA_URL": address, "GOOD_SHA256": digest, "GOOD_URI": f"learnloop://demo/{digest}"}
    assert set(given) == {item["name"] for item in CONTAINER["env"]}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=240)


def test_the_sabotaged_model_is_valid_and_does_the_opposite(data_plane: str, honest: bytes, tmp_path: Path) -> None:
    done = run(data_plane, hashlib.sha256(honest).hexdigest(), tmp_path)
    assert done.returncode == 0, done.stderr
    line = done.stdout.strip().splitlines()[-1]
    made = json.loads(line)
    assert made["uri"] == f"learnloop://default/{made['sha256']}"
    assert (tmp_path / "termination-log").read_text() == line

    stored = httpx.get(f"{data_plane}/api/v1/artifacts/{made['sha256']}", timeout=60).raise_for_status()
    good, bad = (onnxruntime.InferenceSession(model) for model in (honest, stored.content))
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    action, logits = good.run(["action", "logits"], {"observation": observations})
    opposite, negated = bad.run(["action", "logits"], {"observation": observations})
    np.testing.assert_array_equal(negated, -logits)
    np.testing.assert_array_equal(opposite, 1 - action)
    assert [(item.name, item.type, item.shape) for item in bad.get_outputs()] == [
        (item.name, item.type, item.shape) for item in good.get_outputs()
    ]
    assert bad.get_modelmeta().custom_metadata_map == good.get_modelmeta().custom_metadata_map


def test_a_model_that_is_not_there_fails_the_job(data_plane: str, tmp_path: Path) -> None:
    done = run(data_plane, "0" * 64, tmp_path)
    assert done.returncode != 0
    assert "404" in done.stderr
