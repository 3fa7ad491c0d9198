"""GRPO with LoRA on a language model of 135 million parameters, and TRL's on the GPU."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.gpu.lanes import Lane, Outcome
from bench.gpu.tasks import CONTEXT, EPISODES, GROUP, MOST_TOKENS, ROUNDS, SHAPE
from bench.language import peer
from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments.conversations.tool_lookup import ToolLookup
from testing.language.tiny_model import tokeniser

PROGRAM = peer.HERE / "trl_grpo.py"


def make_base(folder: Path) -> None:
    """A Llama with random weights, and the tiny world's tokeniser with as many words as the model has."""
    words = tokeniser(ToolLookup(), seed=0)
    words.add_tokens([f"<|word {number}|>" for number in range(SHAPE["vocab_size"] - len(words))])
    torch.manual_seed(0)
    more = {"pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id, "bos_token_id": None}
    config: Any = {**SHAPE, "max_position_embeddings": 2048, "tie_word_embeddings": True, **more}
    LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(folder)
    words.save_pretrained(folder)


def measured(lane: Lane, base: Path, pythons: dict[str, str]) -> Outcome:
    """Tokens a second, sampled and learned from, by side."""
    job = {"base": str(base), "device": lane.device, "threads": len(lane.cores)}
    sides = {"float32": job | {"precision": "float32", "rounds": 1}}
    if lane.device == "cuda":
        sides = {name: job | {"precision": name, "rounds": ROUNDS} for name in ("bfloat16", "float32")}
    outcomes: Outcome = {}
    for name, task in sides.items():
        run = lane.run_json(pythons["ours"], "-W", "ignore", "-m", "bench.gpu.language_rounds", json.dumps(task))
        outcomes[name] = _speed(run)
    if lane.device == "cuda":
        outcomes["TRL, bfloat16"] = _speed(_peer(lane, base, pythons["trl"]))
    for name, run in outcomes.items():
        print(f"language, {name} on {lane.device}: {run}", flush=True)
    return outcomes


def _peer(lane: Lane, base: Path, python: str) -> Outcome:
    """TRL's GRPOTrainer; its first round is among those measured, since it cannot be left out."""
    chosen, answer = hyperparameters("grpo", batch_episodes=EPISODES, group_size=GROUP), base.parent / "answer.json"
    limits = {"most_tokens": MOST_TOKENS, "context": CONTEXT}
    job = peer.job(base, base.parent / "peer", chosen, seed=0, rounds=ROUNDS + 1, **limits)
    job |= {"device": lane.device, "bfloat16": True}
    failed = lane.run_json(python, "-W", "ignore", str(PROGRAM), json.dumps(job), str(answer))
    if not answer.exists():
        return failed
    answered = json.loads(answer.read_text())
    return {"wall_s": answered["wall_seconds"], "tokens": answered["tokens"]}


def _speed(run: Outcome) -> Outcome:
    return run if "failed" in run else run | {"tokens_per_s": round(run["tokens"] / run["wall_s"], 1)}
