"""Rounds of GRPO on one device; prints one JSON object. Started by language.py, as a process of its own."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench.gpu.tasks import CONTEXT, EPISODES, GROUP, MOST_TOKENS, ROUNDS
from learnloop_api.kinds.training.algorithms import Parameters, hyperparameters
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.distributed import Alone
from learnloop_trainer.language.algorithms import ALGORITHMS
from learnloop_trainer.language.base_model import Base, folder_digest
from learnloop_trainer.language.chat_experience import Plan, Played
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import Setting
from learnloop_trainer.language.sampler import Limits, Rollouts
from learnloop_trainer.training_run.language_training import network_of


def learner(base: Path, parameters: Parameters, device: torch.device) -> Any:
    """GRPO at step 0, with the network that a TrainingJob has."""
    traits = ALGORITHMS["grpo"]
    opened, world, group = Base(base, folder_digest(base)), ToolLookup(), Alone()
    network, chat = network_of(parameters, traits, opened, 0, device), Chat(opened.tokeniser, world.tools)
    rollouts = Rollouts("ToolLookup-v1", world, chat, 0, 512)
    limits = Limits(1.0, chat.stops, MOST_TOKENS, CONTEXT)
    played = Played(rollouts, limits, Plan(EPISODES, GROUP), group)
    return traits.learner(parameters, Setting(network, played, group, 0, (ROUNDS + 1) * EPISODES))


def main(job: dict[str, Any]) -> dict[str, float]:
    """Wall seconds and sampled tokens of the rounds; on a GPU after a first one, in which its kernels are loaded."""
    torch.set_num_threads(job["threads"])
    device = torch.device(job["device"])
    parameters = hyperparameters(
        "grpo",
        batch_episodes=EPISODES,
        group_size=GROUP,
        precision=job["precision"],
        weights="lora",
        tokens_per_batch=65_536 if device.type == "cuda" else 4096,
    )
    learning = learner(Path(job["base"]), parameters, device)
    warm = int(device.type == "cuda")
    tokens, began = 0.0, time.monotonic()
    for number in range(warm + job["rounds"]):
        length = learning.iterate().curves["length"]
        if warm:
            torch.cuda.synchronize()
        if number < warm:
            began = time.monotonic()
        else:
            tokens += length * EPISODES
    spent = time.monotonic() - began
    held = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return {"wall_s": spent, "tokens": tokens, "memory_mib": held / 2**20}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
