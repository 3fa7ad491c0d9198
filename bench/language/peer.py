"""TRL's GRPO on the same model, world, machine and hyperparameters, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.language.tiny_runs import CONTEXT, MOST_TOKENS, Case, Outcome, parameters_of, success_of

HERE = Path(__file__).parent
ROOTS = ("crds", "common", "trainer_image")
SECONDS = 900.0
PARTS = 1
"""Pieces that the peer learns a batch in."""
NAME = "TRL 1.16.0"


def environment() -> Path:
    """The python of the peer's own environment, made the first time."""
    made = subprocess.run([HERE / "peer_venv", sys.executable], check=True, stdout=subprocess.PIPE, text=True)
    return Path(made.stdout.strip())


def job(
    base: Path,
    folder: Path,
    chosen: Any,
    *,
    seed: int,
    rounds: int,
    most_tokens: int = MOST_TOKENS,
    context: int = CONTEXT,
) -> dict[str, Any]:
    """The order for trl_grpo.py: the hyperparameters `chosen` for GRPO by plain names."""
    return {
        "base": str(base),
        "folder": str(folder),
        "seed": seed,
        "rounds": rounds,
        "weights": chosen.weights,
        "learning_rate": chosen.learning_rate,
        "schedule": chosen.learning_rate_schedule,
        "batch_episodes": chosen.batch_episodes,
        "group_size": chosen.group_size,
        "kl": chosen.kl_coefficient,
        "clip_low": chosen.clip_low,
        "clip_high": chosen.clip_high,
        "rank": chosen.lora.rank,
        "alpha": chosen.lora.alpha,
        "layers": list(chosen.lora.layers),
        "parts": PARTS,
        "most_tokens": most_tokens,
        "context": context,
    }


def learned(python: Path, base: Path, case: Case, seed: int, before: Outcome) -> Outcome:
    """The peer's run of a case; `before`: the product's run of the same seed, for the success before learning."""
    roots = HERE.parent.parent
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(roots / name) for name in ROOTS),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory(prefix="bench-language-peer-") as place:
        folder, answer = Path(place) / "model", Path(place) / "answer.json"
        job_text = json.dumps(job(base, folder, parameters_of(case), seed=seed, rounds=case.rounds))
        command = [str(python), "-W", "ignore", str(HERE / "trl_grpo.py"), job_text, str(answer)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise SystemExit(f"trl_grpo.py failed with seed {seed}:\n{done.stderr[-2000:]}")
        took = json.loads(answer.read_text())
        sampled, greedy = success_of(folder)
    spent = float(took["cpu_seconds"])
    speed = float(took["tokens"]) / max(spent, 1e-9)
    return Outcome((before.sampled[0], sampled), (before.greedy[0], greedy), spent, speed)
