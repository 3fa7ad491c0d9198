"""A TrainingJob's run of RLOO with LoRA, by the program of the trainer's image, with a folder as its store."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import torch

from learnloop_api.wire.training import Manifest
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.directory import DirectoryStore

JOB = "nightly-language"
GROUP, MOST_TOKENS, CONTEXT = 8, 40, 384
TOKENS_PER_BATCH = 1024
"""For its gradient, what 30 layers keep of one token is 2 MB: more of them at once ended a machine of 23 GB."""
ROUND_COST = 2.5
"""Processor time of a round beside that of learning from its tokens once: they are drawn and asked of the base, too."""
FILES = {"peft-config": "adapter_config.json", "gguf-lora": "adapter.gguf"}


@dataclass(frozen=True, slots=True)
class Asked:
    """How a run learns.

    Attributes:
        episodes: between two updates.
        held_out: tasks that both models are judged by, each twice.
    """

    environment: str
    rounds: int
    episodes: int
    held_out: int
    rate: float
    seed: int


def order(base: Path, asked: Asked) -> dict[str, Any]:
    """The document that the operator would give the run."""
    spoken = {
        "base": {"uri": base.resolve().as_uri(), "sha256": folder_digest(base)},
        "contextLength": CONTEXT,
        "sampling": {"temperature": 1, "maxTokens": MOST_TOKENS},
    }
    rloo = {
        "batchEpisodes": asked.episodes,
        "groupSize": GROUP,
        "learningRate": asked.rate,
        "learningRateSchedule": "constant",
        "tokensPerBatch": TOKENS_PER_BATCH,
        "weights": "lora",
    }
    if torch.cuda.is_available():
        rloo |= {"precision": "bfloat16", "tokensPerBatch": 65_536}
    spec = {
        "algorithm": "rloo",
        "rloo": rloo,
        "totalSteps": asked.rounds * asked.episodes,
        "seed": asked.seed,
        "evaluation": {"episodes": asked.held_out},
        "data": {"environment": asked.environment, "languageModel": spoken},
    }
    return {"job": JOB, "spec": spec}


def learn(base: Path, asked: Asked, store: Path) -> tuple[Manifest, float]:
    """Run it; the manifest and the processor seconds. Raises SystemExit where the trainer fails."""
    told = os.environ | {
        "LEARNLOOP_TRAINING_SPEC": json.dumps(order(base, asked)),
        "LEARNLOOP_STORE": store.resolve().as_uri(),
        "LEARNLOOP_TERMINATION_LOG": str(store.parent / "said"),
        "PYTHONUNBUFFERED": "1",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "learnloop_trainer"], env=told, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = DirectoryStore(store, JOB).manifest()
    if done.returncode or manifest is None:
        killed = "it was killed, as by a machine without memory" if done.returncode == -9 else "its output says why"
        raise SystemExit(f"the trainer ended with exit code {done.returncode}: {killed}")
    return manifest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def kept(manifest: Manifest, folder: Path) -> Path:
    """The adapter as PEFT's two files and llama.cpp's one, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_path(manifest.artifact_uri), folder / "adapter_model.safetensors")
    for export in manifest.exports:
        shutil.copyfile(_path(export.uri), folder / FILES[export.format])
    return folder


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def rounds_for(seconds: float, episodes: int, tokens: float, token_seconds: float) -> int:
    """Whole rounds that this much processor time should hold, one at least."""
    return max(1, int(seconds / max(1e-9, ROUND_COST * episodes * tokens * token_seconds)))
