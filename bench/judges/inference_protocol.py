"""Open Inference Protocol: requests from its own OpenAPI document, and Triton's and KServe's clients."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.judges.cases import Suite, finish
from bench.judges.documents import Documents
from bench.judges.schema_requests import explore
from testing.servers.policy_servers import STABLE, clean_environment, table, write_policy
from testing.servers.ports import held_port

SPECIFICATION = Documents(
    "kserve/open-inference-protocol",
    "d49cc23f89d709d87b210ef9449e273ae243984e",
    {
        "specification/protocol/open_inference_rest.yaml": (
            "719644d1cec52d1c98268ee16f3b75d6de7f523c6686463cbf06bf79134edbb2"
        )
    },
)
PACKAGES = "tritonclient[http]==2.73.0 kserve==0.21.0"
MODEL = "cart"
BOUNDS = ("--phases", "examples,coverage,fuzzing", "--max-examples", "100")
SETTINGS = f"""
[parameters]
"path.MODEL_NAME" = "{MODEL}"
"path.MODEL_VERSION" = "{STABLE}"

# The document allows tensors of every name, shape and type; a model has one signature.
[[operations]]
include-path-regex = ".*/infer$"
checks.positive_data_acceptance.enabled = false
"""


def main() -> int:
    """1 when a suite has failures."""
    with tempfile.TemporaryDirectory() as text, policy_server(Path(text)) as url:
        suites = [explore("schemathesis, Open Inference Protocol", document(), url, Path(text), SETTINGS, *BOUNDS)]
        suites += _clients(url)
    return finish(*suites)


def document() -> dict[str, Any]:
    """The specification's own, its paths' `${NAME}` written as OpenAPI has it: its one fault."""
    text = (SPECIFICATION.folder() / next(iter(SPECIFICATION.files))).read_text(encoding="utf-8")
    written: dict[str, Any] = yaml.safe_load(text.replace("${", "{"))
    return written


@contextmanager
def policy_server(folder: Path) -> Iterator[str]:
    """The address of a policy server process that serves a linear policy of 4 numbers and 2 actions."""
    digest = write_policy(folder / "policy.onnx")
    (folder / "routing.json").write_text(table((STABLE, "stable", 100)))
    with held_port() as port:
        environment = clean_environment(
            LEARNLOOP_MODEL_DEPLOYMENT=MODEL,
            LEARNLOOP_REVISION=STABLE,
            LEARNLOOP_MODEL_URI=(folder / "policy.onnx").as_uri(),
            LEARNLOOP_MODEL_SHA256=digest,
            LEARNLOOP_ROUTING_FILE=str(folder / "routing.json"),
            LEARNLOOP_TERMINATION_LOG=str(folder / "termination-log"),
            LEARNLOOP_DRAIN_SECONDS="0",
            LEARNLOOP_HOST="127.0.0.1",
            LEARNLOOP_PORT=str(port),
        )
        process = subprocess.Popen([sys.executable, "-m", "learnloop_serving"], env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            _until_ready(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(60)


def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the policy server did not become ready")


def _clients(url: str) -> list[Suite]:
    made = [str(Path(__file__).parents[1] / "peer_venv"), sys.executable, "judges-inference-protocol", PACKAGES]
    python = subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    command = [python, "-m", "bench.judges.inference_clients", url, MODEL, STABLE]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=600)
    return [Suite(**suite) for suite in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    sys.exit(main())
