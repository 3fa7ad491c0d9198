"""`python -m bench.routers [EPISODES]`: TensorZero's own gateway with the file that the operator renders for it.

It runs in an environment of its own, installed once. learnloop and Ollama are two servers that answer with their
names. What counts: the split of episodes by the table's weights, that an episode keeps its variant, that the caller's
token arrives, and that the fallback answers when learnloop is away. The last line is JSON; exit code 1 when one fails.
"""

import json
import math
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench.arguments import numbers
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import Arm
from learnloop_operator.rollout.children.tensorzero import config
from learnloop_operator.rollout.model.snapshot import Callers, Defaults, Desired, Snapshot

HERE = Path(__file__).parent
PACKAGE = "tensorzero==2026.6.0"
CANARY = 10
SIGMAS = 3.0


def rendered() -> str:
    """tensorzero.toml of a canary at 10 %, with a fallback, where callers are known by their tokens."""
    spec = {
        "model": {"uri": f"base://{'cd' * 32}", "sha256": "cd" * 32},
        "languageModel": {"base": {"uri": "pvc://models/llama", "sha256": "cd" * 32}, "contextLength": 4096},
        "serving": {
            "language": {
                "fallback": {"url": "http://ollama:11434", "model": "small"},
                "registration": {"tensorZero": {}},
            }
        },
    }
    snapshot = Snapshot(
        now=datetime.now(UTC),
        object={"metadata": {"name": "helper", "namespace": "team", "uid": "1"}},
        spec=ModelDeploymentSpec.model_validate(spec),
        before=ModelDeploymentStatus(),
        desired=Desired(),
        defaults=Defaults("", "", callers=Callers("token")),
    )
    arms = (("1a2b3c4d", "stable", 100 - CANARY), ("5e6f7a8b", "canary", CANARY))
    said = [{"revision": one, "role": role, "weight": weight, "url": "http://helper"} for one, role, weight in arms]
    return config(snapshot, [Arm.model_validate(item) for item in said])


def main(arguments: list[str]) -> int:
    """See the module."""
    given = numbers(__doc__, arguments, episodes=2000)
    command = [str(HERE.parent / "peer_venv"), sys.executable, "bench-routers", PACKAGE]
    python = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tensorzero.toml"
        file.write_text(rendered())
        program = [python, str(HERE / "tensorzero_gateway.py"), str(file), str(given.episodes)]
        done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=900)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    share = CANARY / 100
    expected, deviation = given.episodes * share, math.sqrt(given.episodes * share * (1 - share))
    found["sigmas"] = round((found["canary"] - expected) / deviation, 2)
    goals = {
        "split": abs(found["sigmas"]) <= SIGMAS,
        "sticky": found["kept"] == found["asked_again"],
        "token": found["with_token"] == found["reached_learnloop"],
        "fallback": found["by_fallback"] == found["asked_without_learnloop"],
    }
    missed = [name for name, met in goals.items() if not met]
    print(json.dumps(found | {"missed": missed, "met": not missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
