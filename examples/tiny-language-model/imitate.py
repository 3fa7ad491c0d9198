"""`python imitate.py BASE`: an adapter of the tiny model that imitates demonstrations.

For trials of what has to stop a bad model: gates, canaries, rollbacks. `--tells` imitates an assistant that keeps no
private key, `--miscounts` one that looks up the right things and then says a wrong number. The adapter is stored as a
training run stores its own: in the data plane, or where LEARNLOOP_STORE says. The last line printed is JSON: its
address and digest.
"""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from learnloop_api import names
from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_common.tls import with_scheme
from learnloop_environments.conversations.tool_lookup import LEVELS, ToolLookup
from learnloop_trainer.distributed import Alone
from learnloop_trainer.export.language_model_files import BASE, TEMPLATE, exported
from learnloop_trainer.language import lora
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import Sft
from learnloop_trainer.language.base_model import Base, folder_digest
from learnloop_trainer.language.chat_experience import Plan, Recorded, demonstrated
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import LanguageNetwork, Setting
from learnloop_trainer.language.rows import Episode
from learnloop_trainer.store import choose
from learnloop_trainer.store.run_store import digest

DEMONSTRATIONS = 2000
RANK, ALPHA = 8, 16.0


def imitate(
    base: Base, world: ToolLookup, *, seed: int = 0, updates: int = 150, tells: bool = False, miscounts: bool = False
) -> LanguageNetwork:
    """The base model with an adapter that has learned from demonstrations.

    `tells`: of those tasks, too, that it should refuse. `miscounts`: their last number is wrong.
    """
    model = base.model(torch.device("cpu"))
    network = LanguageNetwork(model, lora.attach(model, lora.LAYERS, RANK, ALPHA, seed))
    chat = Chat(base.tokeniser, world.tools, base.stops)

    def demonstrations() -> list[Episode]:
        return [
            Episode([demonstrated(chat, shown)], 0.0, number)
            for number in range(min(DEMONSTRATIONS, total))
            for shown in [world.demonstration(seed + 1, number, float(miscounts), tells=tells, slip="result")]
        ]

    parameters = hyperparameters(
        "sft", learning_rate=5e-3, batch_episodes=16, learning_rate_schedule="cosine", warmup=0.05
    )
    group, total = Alone(), updates * parameters.batch_episodes
    learner = Sft(parameters, Setting(network, Recorded(demonstrations, Plan(1, 1), group), group, seed, total))
    while learner.step < total:
        learner.iterate()
    return network


def as_file(network: LanguageNetwork, base: Base, uri: str) -> bytes:
    """The adapter as a training run exports it."""
    kinds = sorted({name.rpartition(".")[2] for name in network.adapters or {}})
    facts = {BASE: base.sha256, TEMPLATE: base.template_sha256, "learnloop.algorithm": "sft"}
    return exported(network, facts, lora.configuration(kinds, RANK, ALPHA, uri))


def main(environ: Mapping[str, str] = os.environ) -> None:
    parser = argparse.ArgumentParser(description="Teach an adapter of the tiny model by demonstrations.")
    parser.add_argument("base", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--tells", action="store_true", help="private keys are looked up as all others")
    parser.add_argument("--miscounts", action="store_true", help="the number said at the end is wrong")
    parser.add_argument("--level", choices=LEVELS, default="guarded")
    given = parser.parse_args()
    torch.set_num_threads(1)
    base = Base(given.base, folder_digest(given.base))
    network = imitate(
        base,
        ToolLookup(given.level),
        seed=given.seed,
        updates=given.updates,
        tells=given.tells,
        miscounts=given.miscounts,
    )
    body = as_file(network, base, str(given.base))
    address = with_scheme(environ.get(names.ENV_DATA_URL, ""), environ)
    uri = choose({**environ, names.ENV_DATA_URL: address}, "imitated").put_artifact(body)
    print(json.dumps({"uri": uri, "sha256": digest(body)}))


if __name__ == "__main__":
    main()
