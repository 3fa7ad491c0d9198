"""One algorithm on the tiny model: how much its success on held-out tasks rises, and at what processor time."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.randomness import Split
from learnloop_trainer.distributed.collectives import Alone
from learnloop_trainer.language import algorithms, lora
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.experience import Plan, Played
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rollouts import Draw, Rollouts
from learnloop_trainer.language.sampler import Limits, sample

CONTEXT, MOST_TOKENS = 256, 64


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
        tokens_per_second: sampled and learned from, by processor seconds.
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


class TinyRun:
    """The learner of a case on the model in `base`."""

    def __init__(self, base: Path, case: Case, seed: int, held_out: int = 256) -> None:
        """`held_out`: tasks that success is measured on; the same for every seed."""
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        traits = algorithms.find(case.algorithm)
        assert traits is not None, case.algorithm
        words, world, group = AutoTokenizer.from_pretrained(base), ToolLookup(), Alone()
        model: Any = AutoModelForCausalLM.from_pretrained(base)
        given = {"learning_rate_schedule": "constant", **case.parameters}
        chosen: Any = traits.parameters(weights=case.weights, **given)
        whole = case.weights == "full"
        self.network = LanguageNetwork(
            model,
            None if whole else lora.attach(model, chosen.lora.layers, chosen.lora.rank, chosen.lora.alpha, seed),
            value_head=traits.values,
            reference=AutoModelForCausalLM.from_pretrained(base) if whole else None,
        )
        self._chat = Chat(words, world.tools)
        self._rollouts = Rollouts("ToolLookup-v1", world, self._chat, seed, 512)
        self._judged = Rollouts("ToolLookup-v1", world, self._chat, 0, 512)
        size = getattr(chosen, "batch_episodes", 0) or chosen.batch_pairs
        plan = Plan(getattr(chosen, "batch_episodes", 0), chosen.group_size, getattr(chosen, "rollouts", 0))
        played = Played(self._rollouts, self._limits(1.0), plan, group)
        self.learner = traits.learner(chosen, Setting(self.network, played, group, seed, case.rounds * size))
        self._case, self._held_out = case, held_out

    def _limits(self, temperature: float) -> Limits:
        return Limits(temperature, self._chat.stops, MOST_TOKENS, CONTEXT)

    def success(self, temperature: float) -> float:
        """Share of held-out tasks it solves."""
        draws = [Draw(task, task) for task in range(self._held_out)]
        with self.network.sampling() as model:
            speak = lambda prompts, drawn, limits: sample(model, prompts, drawn, limits)  # noqa: E731
            held = self._judged.play(draws, Split.HELD_OUT, speak, self._limits(temperature), 0)
        return sum(episode.reward for episode in held) / self._held_out

    def learned(self) -> Outcome:
        """Learn for all rounds, on one thread."""
        torch.set_num_threads(1)
        before = self.success(1.0), self.success(0.0)
        began, tokens = time.process_time(), 0.0
        for _ in range(self._case.rounds):
            done = self.learner.iterate()
            tokens += done.curves.get("length", 0.0) * getattr(self.learner.parameters, "batch_episodes", 0)  # type: ignore[attr-defined]
        spent = time.process_time() - began
        after = self.success(1.0), self.success(0.0)
        return Outcome((before[0], after[0]), (before[1], after[1]), spent, tokens / max(spent, 1e-9))
