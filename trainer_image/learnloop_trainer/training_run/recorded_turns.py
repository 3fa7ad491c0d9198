"""Recorded turns of language models, and an adapter that imitates them."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_api.wire.language import Preference
from learnloop_api.wire.trajectory import LoggedEpisode, Step
from learnloop_common.tls.contexts import with_scheme
from learnloop_environments.conversations.tool_lookup import LEVELS, ToolLookup
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.torch_group import Alone
from learnloop_trainer.export.language import BASE, TEMPLATE, exported
from learnloop_trainer.language import lora
from learnloop_trainer.language.algorithms.sft import Sft
from learnloop_trainer.language.base_model import Base, folder_digest
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.experience import Plan, Recorded, demonstrated, episodes_of, pairs_of
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import ANY, Bounds, Episode, Pair
from learnloop_trainer.manifest.baseline_policy import fetch
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.recordings import ReadExperience
from learnloop_trainer.store import Store, factory
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.logged_experience import listed, logged_episodes, note_of
from learnloop_trainer.training_run.reward_rules import credited, policy_in_force, require_measured, step_rewards

MOST_PREFERENCES = 100_000


def recorded_episodes(
    order: Order, store: Store, chat: Chat, read: ReadExperience, bounds: Bounds = ANY
) -> list[Episode]:
    """What the order names, as episodes to learn from; `read` says afterwards what that was. Raises ConfigError.

    `bounds`: what the run's model can read.
    """
    parameters = order.parameters
    logged, agent, selection = logged_episodes(order, store, parameters.max_recorded_turns)
    finished = [episode for episode in logged if episode.status == "completed"]
    if len(finished) < len(logged):
        say(f"{len(logged) - len(finished)} recorded conversations are left out: they ended in an error, or withdrawn")
    policy = policy_in_force(order, store)
    rewards = step_rewards(policy, played=False, success_return=order.spec.data.success_return)
    rewarded = [_rewarded(episode, rewards(episode)) for episode in finished]
    found = episodes_of(rewarded, parameters.max_staleness, chat.digest, _base(order), bounds)
    lacking = "" if order.spec.algorithm == "sft" else require_measured(order, policy, finished)
    steps = sum(int(episode.values.get("turns", 1)) for episode in found)
    read.note = note_of(logged, store, steps, agent, selection, credited(finished, policy), lacking)
    return found


def _base(order: Order) -> str | None:
    """Digest of the base model that the run begins from."""
    model = order.spec.data.language_model
    return model.base.sha256 if model is not None else None


def _rewarded(episode: LoggedEpisode, rewards: Sequence[float]) -> list[Step]:
    return [step.model_copy(update={"reward": worth}) for step, worth in zip(episode.steps, rewards, strict=True)]


def preferred_pairs(order: Order, store: Store, chat: Chat, read: ReadExperience, bounds: Bounds = ANY) -> list[Pair]:
    """What people preferred, of a file or of the agent; `read` says afterwards which they are. Raises ConfigError.

    `bounds`: what the run's model can read.
    """
    parameters, agent = order.parameters, order.spec.data.learning_agent_ref
    named = "spec.hyperparameters.recording"
    if parameters.recording:
        found = _preferences_in(fetch(parameters.recording, store, named, FILE_FIX), parameters.recording, named)
    elif agent is None:
        fix = f"set it, or {named}"
        raise ConfigError("spec.data.learningAgentRef", "", "is missing: whose preferences are learned?", fix)
    else:
        found = store.preferences(agent.name, MOST_PREFERENCES)
    note = listed([one.preference_id for one in found], store, 2 * len(found))
    read.note = note.model_copy(update={"agent": agent.name if agent and not parameters.recording else None})
    return pairs_of(found, chat, _base(order), bounds)


FILE_FIX = "point it to a file with one preference as JSON on each line"


def _preferences_in(body: bytes, uri: str, named: str) -> list[Preference]:
    found: list[Preference] = []
    for number, line in enumerate(body.splitlines(), 1):
        try:
            found.append(Preference.model_validate_json(line))
        except ValidationError as error:
            problem = f"line {number} is no preference ({error.errors()[0]['msg']})"
            raise ConfigError(named, uri, problem, FILE_FIX) from None
    return found


# For trials of what has to stop a bad model: gates, canaries, rollbacks. `--tells` imitates somebody who keeps no
# private key, `--miscounts` somebody who looks up the right things and then says a wrong number. The adapter is
# stored as a training run stores its own: in the data plane, or where LEARNLOOP_STORE says. The last line printed is
# JSON: its address and digest.

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
            for number in range(DEMONSTRATIONS)
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
    """See the module."""
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
    uri = factory.choose({**environ, names.ENV_DATA_URL: address}, "imitated").put_artifact(body)
    print(json.dumps({"uri": uri, "sha256": digest(body)}))


if __name__ == "__main__":
    main()
