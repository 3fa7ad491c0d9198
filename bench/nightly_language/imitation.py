"""The model imitates demonstrations of which half err, so that it calls the tool at all: the base of what follows.

An adapter learns by the trainer's `sft`, and is then added to the weights. What comes out is a whole model in a folder:
RLOO begins with a fresh adapter beside it, and a server loads it as any other.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.nightly_language.base import TEMPLATE
from learnloop_api.kinds.training.language_algorithms import SftParameters
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.distributed.collectives import Alone
from learnloop_trainer.language import lora
from learnloop_trainer.language.algorithms.sft import Sft
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.experience import Plan, Recorded, demonstrated
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import Episode

MISTAKES = 0.5
BATCH, RATE = 8, 1e-3


@dataclass(frozen=True, slots=True)
class Imitated:
    """What imitation took.

    Attributes:
        tokens: in a demonstration, on average.
        token_seconds: of the processor, to learn from one token.
    """

    updates: int
    seconds: float
    tokens: float
    token_seconds: float


def imitate(source: Path, folder: Path, world: ToolLookup, updates: int, seconds: float, seed: int) -> Imitated:
    """Write the model that has imitated to `folder`; at most so many updates and processor seconds."""
    words: Any = AutoTokenizer.from_pretrained(source, local_files_only=True)
    if "tools" not in (words.chat_template or ""):
        words.chat_template = TEMPLATE
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model: Any = AutoModelForCausalLM.from_pretrained(source, local_files_only=True, dtype=torch.float32)
    model.to(device)
    parameters = SftParameters(learning_rate=RATE, batch_episodes=BATCH, warmup=0.1)
    asked = parameters.lora
    adapters = lora.attach(model, asked.layers, asked.rank, asked.alpha, seed)
    chat, group = Chat(words, world.tools), Alone()
    rows = [
        demonstrated(chat, world.demonstration(seed + 1, number, MISTAKES)) for number in range(max(1, updates) * BATCH)
    ]
    episodes = [Episode([row], 0.0, number) for number, row in enumerate(rows)]
    setting = Setting(
        LanguageNetwork(model, adapters), Recorded(lambda: episodes, Plan(1, 1), group), group, seed, len(rows)
    )
    learner, began, done = Sft(parameters, setting), time.process_time(), 0
    while done < updates and time.process_time() - began < seconds:
        learner.iterate()
        done += 1
    spent, tokens = time.process_time() - began, sum(len(row.ids) for row in rows) / len(rows)
    with torch.no_grad():
        for name, adapter in adapters.items():
            adapter.base.weight += adapter.scale * (adapter.lora_B @ adapter.lora_A)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, adapter.base)
    shutil.rmtree(folder, ignore_errors=True)
    model.cpu().save_pretrained(folder)
    words.save_pretrained(folder)
    return Imitated(done, spent, tokens, spent / max(1.0, done * BATCH * tokens))
