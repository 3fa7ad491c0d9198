"""Reads what the gateway lays out of a proven language model by others' code: transformers and PEFT."""

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from peft import PeftModel
from transformers import AutoModelForCausalLM

from learnloop_api.wire.training import Proof
from learnloop_gateway.fetch_weights import lay_out
from learnloop_trainer.baseline_policy import HeldOutTasks, limits, returns
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.language_training import opened


def served_mean(order: Order, proof: Proof, base: Path, folder: Path) -> float:
    """Mean reward of its likeliest answers in the held-out conversations of its proof."""
    folder.mkdir()
    shutil.copyfile(urlsplit(proof.artifact_uri).path, folder / "artifact")
    lay_out(folder / "artifact", "vllm", base, folder, rank=64, gguf="")
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    model = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    parts, spoken, held_out = opened(order), order.spec.data.language_model, proof.held_out
    assert spoken is not None
    assert held_out is not None
    tasks = HeldOutTasks(order, parts.world, parts.chat, held_out.seed)
    likeliest = limits(spoken.sampling, parts.chat, parts.context, 0.0)
    return float(returns(tasks.play(model.eval(), likeliest, held_out.first, held_out.episodes)).mean())
