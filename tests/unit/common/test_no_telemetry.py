"""onnxruntime sends telemetry and keeps an id of the machine unless a setting forbids it before the import."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = """
from learnloop_common.acting.onnx_policy import OnnxPolicy
try:
    OnnxPolicy(b"")
except ValueError as error:
    print(error)
"""


WITH_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch, which `make unit` installs")
FIRST = [
    pytest.param("learnloop_trainer.export", marks=WITH_TORCH),
    "learnloop_serving",
    "learnloop_dataplane.embedding",
]


@pytest.mark.parametrize("first", FIRST)
def test_a_process_that_runs_policies_leaves_no_id_of_the_machine(first: str, tmp_path: Path) -> None:
    ours = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environ = {key: value for key, value in os.environ.items() if key not in ours} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-c", f"import {first}\n{PROGRAM}"]
    ended = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    assert "not a loadable ONNX model" in ended.stdout
    assert not list(tmp_path.rglob("deviceid"))
