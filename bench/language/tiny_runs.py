"""One algorithm on the tiny model: how much its success on held-out tasks rises, and at what processor time."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.randomness import Split
from learnloop_trainer.distributed import Alone
from learnloop_trainer.language import lora
from learnloop_trainer.language.algorithms import ALGORITHMS
from learnloop_trainer.language.chat_experience import Plan, Played
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import LanguageNetwork, Setting
from learnloop_trainer.language.sampler import Draw, Limits, Rollouts, Sampler

CONTEXT, MOST_TOKENS, HELD_OUT = 256, 64, 256


@dataclass(frozen=True, slots=True)
class Case:
    """An algorithm with its hyperparameters, and for how many rounds it learns."""

    algorithm: str
    weights: str
    rounds: int
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Shares of held-out tasks solved, before and after, and what learning took.

    Attributes:
        tokens_per_second: sampled and learned from, by processor seconds; 0 where pairs are learned from.
    """

    sampled: tuple[float, float]
    greedy: tuple[float, float]
    cpu_seconds: float
    tokens_per_second: float

    @property
    def gain(self) -> float:
        """Of the sampled success."""
        return self.sampled[1] - self.sampled[0]

    @property
    def greedy_gain(self) -> float:
        """Of the success of the likeliest answers."""
        return self.greedy[1] - self.greedy[0]


def parameters_of(case: Case) -> Any:
    """Its hyperparameters, the defaults included."""
    given = {"learning_rate_schedule": "constant", **case.parameters}
    return hyperparameters(case.algorithm, weights=case.weights, **given)


class Judge:
    """Held-out tasks; the same ones, drawn alike, for every policy."""

    def __init__(self, chat: Chat, held_out: int = HELD_OUT) -> None:
        """`held_out`: how many."""
        self._chat, self._held_out = chat, held_out
        self._rollouts = Rollouts("ToolLookup-v1", ToolLookup(), chat, 0, 512)

    def success(self, network: LanguageNetwork) -> tuple[float, float]:
        """Shares of tasks solved: as sampled, and with the likeliest answers."""
        return self._share(network, 1.0), self._share(network, 0.0)

    def _share(self, network: LanguageNetwork, temperature: float) -> float:
        draws = [Draw(task, task) for task in range(self._held_out)]
        with network.sampling() as model:
            speak = Sampler(model)
            held = self._rollouts.play(draws, Split.HELD_OUT, speak, limits_of(self._chat, temperature), 0)
        return sum(episode.reward for episode in held) / self._held_out


def limits_of(chat: Chat, temperature: float) -> Limits:
    """How the tiny model speaks."""
    return Limits(temperature, chat.stops, MOST_TOKENS, CONTEXT)


def success_of(folder: Path) -> tuple[float, float]:
    """Of a whole model that somebody else wrote; see Judge.success."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    chat = Chat(AutoTokenizer.from_pretrained(folder), ToolLookup().tools)
    return Judge(chat).success(LanguageNetwork(AutoModelForCausalLM.from_pretrained(folder)))


class TinyRun:
    """The learner of a case on the model in `base`."""

    def __init__(self, base: Path, case: Case, seed: int) -> None:
        """At step 0."""
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        traits, chosen = ALGORITHMS[case.algorithm], parameters_of(case)
        words, world, group = AutoTokenizer.from_pretrained(base), ToolLookup(), Alone()
        model: Any = AutoModelForCausalLM.from_pretrained(base)
        whole = case.weights == "full"
        self.network = LanguageNetwork(
            model,
            None if whole else lora.attach(model, chosen.lora.layers, chosen.lora.rank, chosen.lora.alpha, seed),
            value_head=traits.values,
            reference=AutoModelForCausalLM.from_pretrained(base) if whole else None,
        )
        chat = Chat(words, world.tools)
        self._judge, self._batch = Judge(chat), chosen.batch_episodes
        rollouts = Rollouts("ToolLookup-v1", world, chat, seed, 512)
        plan = Plan(self._batch, chosen.group_size)
        played = Played(rollouts, limits_of(chat, 1.0), plan, group)
        total = case.rounds * self._batch
        self.learner = traits.learner(chosen, Setting(self.network, played, group, seed, total))
        self._case = case

    def learned(self) -> Outcome:
        """Learn for all rounds, on one thread."""
        torch.set_num_threads(1)
        before = self._judge.success(self.network)
        began, tokens = time.process_time(), 0.0
        for _ in range(self._case.rounds):
            tokens += self.learner.iterate().curves.get("length", 0.0) * self._batch
        spent = time.process_time() - began
        after = self._judge.success(self.network)
        return Outcome((before[0], after[0]), (before[1], after[1]), spent, tokens / max(spent, 1e-9))
