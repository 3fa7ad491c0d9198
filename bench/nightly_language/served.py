"""llama.cpp's server of the base with the trained adapter, beside the trainer: log-probabilities of the same tokens."""

import json
import subprocess
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.language.server_parity import differences, drawn, figures, served
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.randomness import Split
from learnloop_trainer.export.language import read
from learnloop_trainer.language import gguf_model, lora
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.network import LanguageNetwork

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = "LlamaForCausalLM"
"""What gguf_model writes."""
KEYS_AND_VALUES = {"float16": [], "float32": ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"]}
"""Options of the server: by default it rounds keys and values to 16 bits, and a larger model sums more of them."""
MEAN, MOST = 5e-4, 5e-3
"""Bars of |Δ log-probability| with float32 keys and values; another adapter or template differs by whole units."""


def command() -> list[str] | str:
    """Of a llama-server here, or why there is none."""
    done = subprocess.run([ROOT / "bench/llama_server"], capture_output=True, text=True, check=False)
    return done.stdout.split() if not done.returncode else " ".join(done.stderr.split())[-200:]


def compared(base: Path, adapter: Path, world: ToolLookup, turns: int, server: list[str] | None) -> dict[str, Any]:
    """Figures of |Δ log-probability| with the adapter and without, by how the server keeps keys and values.

    `passed` is of float32; `skipped` with a reason where there is no server.
    """
    config = json.loads((base / "config.json").read_text())
    if config.get("architectures") != [ARCHITECTURE] or not config.get("tie_word_embeddings"):
        return {"skipped": f"{config.get('architectures')}: written as GGUF are {ARCHITECTURE} with tied embeddings"}
    found = server or command()
    if isinstance(found, str):
        return {"skipped": found}
    gguf_model.write(base, whole := base.with_name("base.gguf"))
    trained = read((adapter / "adapter_model.safetensors").read_bytes())
    said = json.loads((adapter / "adapter_config.json").read_text())
    model: Any = AutoModelForCausalLM.from_pretrained(base, local_files_only=True, dtype=torch.float32)
    adapters = lora.attach(model, said["target_modules"], said["r"], said["lora_alpha"], 0)
    lora.load(adapters, trained.arrays)
    network = LanguageNetwork(model, adapters)
    chat = Chat(AutoTokenizer.from_pretrained(base, local_files_only=True), world.tools)
    prompts = [chat.opening(world.begin(Split.HELD_OUT, 0, number).opening) for number in range(turns)]
    gaps: dict[str, Any] = {}
    for name, options in KEYS_AND_VALUES.items():
        with served(found, whole, adapter / "adapter.gguf", options) as client:
            alone = figures(differences(network, drawn(client, prompts, 0.0), base=True))
            together = figures(differences(network, drawn(client, prompts, 1.0), base=False))
        gaps[name] = {"base": alone, "adapter": together}
    whole.unlink()
    passed = all(one["mean"] <= MEAN and one["most"] <= MOST for one in gaps["float32"].values())
    return gaps | {"bar": {"mean": MEAN, "most": MOST}, "passed": passed}
