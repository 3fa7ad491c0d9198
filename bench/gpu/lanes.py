"""Programs of the bench as processes, on the GPU with one half of the processors, or on the other half alone."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOTS = (".", "crds", "common", "trainer_image")
SECONDS = 300.0
Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lane:
    """A device, and the cores for its user."""

    device: str
    cores: Sequence[int]

    def run(self, *command: str) -> str:
        """The last line of the command's output; raises CalledProcessError or TimeoutExpired."""
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join([*(str(ROOT / name) for name in ROOTS), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": str(len(self.cores)),
        }
        pinned = ["taskset", "-c", ",".join(map(str, self.cores)), *command]
        done = subprocess.run(pinned, env=environ, capture_output=True, text=True, timeout=SECONDS, check=True)
        return done.stdout

    def run_json(self, *command: str) -> Outcome:
        """The JSON object that it printed last; or, under `failed`, why there is none."""
        try:
            outcome: Outcome = json.loads(self.run(*command).strip().splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
            return {"failed": str(getattr(error, "stderr", "") or error)[-1500:]}
        return outcome


def lanes(cores: Sequence[int]) -> list[Lane]:
    """One for the GPU and one for the processors, which run side by side."""
    half = max(1, len(cores) // 2)
    return [Lane("cuda", cores[:half]), Lane("cpu", cores[half:] or cores[:half])]
