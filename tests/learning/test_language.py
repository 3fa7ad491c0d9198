"""Language models of 118,000 parameters, made from nothing, learn to use tools. One model is made for all of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.randomness import Split
from learnloop_trainer.distributed.collectives import Alone
from learnloop_trainer.language import algorithms, lora
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.experience import Plan, Played
from learnloop_trainer.language.from_scratch import make
from learnloop_trainer.language.learning import Setting
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rollouts import Draw, Rollouts
from learnloop_trainer.language.sampler import Limits, sample

HELD_OUT = 256


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that imitates demonstrations of which two thirds err."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("base")
    make(directory, ToolLookup(), updates=300)
    return directory


class Run:
    """One algorithm on the model."""

    def __init__(self, base: Path, algorithm: str, weights: str, rounds: int, **parameters: Any) -> None:
        traits = algorithms.find(algorithm)
        assert traits is not None
        model, words = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
        world, group = ToolLookup(), Alone()
        chosen = traits.parameters(weights=weights, learning_rate_schedule="constant", **parameters)
        whole = weights == "full"
        self.network = LanguageNetwork(
            model,
            None if whole else lora.attach(model, lora.LAYERS, 8, 16.0, 0),
            value_head=traits.values,
            reference=AutoModelForCausalLM.from_pretrained(base) if whole else None,
        )
        self._chat = Chat(words, world.tools)
        self._rollouts = Rollouts("ToolLookup-v1", world, self._chat, 0, 512)
        size = getattr(chosen, "batch_episodes", 0) or chosen.batch_pairs
        plan = Plan(getattr(chosen, "batch_episodes", 0), chosen.group_size, getattr(chosen, "rollouts", 0))
        played = Played(self._rollouts, self._limits(1.0), plan, group)
        self.learner = traits.learner(chosen, Setting(self.network, played, group, 0, rounds * size))
        self._rounds = rounds

    def _limits(self, temperature: float) -> Limits:
        return Limits(temperature, self._chat.stops, 64, 256)

    def success(self, temperature: float) -> float:
        """Share of held-out tasks it solves."""
        draws = [Draw(task, task) for task in range(HELD_OUT)]
        with self.network.sampling() as model:
            speak = lambda prompts, drawn, limits: sample(model, prompts, drawn, limits)  # noqa: E731
            held = self._rollouts.play(draws, Split.HELD_OUT, speak, self._limits(temperature), 0)
        return sum(episode.reward for episode in held) / HELD_OUT

    def learned(self) -> tuple[float, float]:
        """How much the sampled and the greedy success rose."""
        before = self.success(1.0), self.success(0.0)
        for _ in range(self._rounds):
            self.learner.iterate()
        return self.success(1.0) - before[0], self.success(0.0) - before[1]


@pytest.mark.parametrize(
    ("algorithm", "weights", "rate", "rounds"),
    [
        ("rloo", "lora", 3e-3, 14),
        ("grpo", "lora", 2e-3, 14),
        ("rloo", "full", 7e-4, 14),
    ],
)
def test_a_policy_gradient_teaches_the_use_of_tools(
    base: Path, algorithm: str, weights: str, rate: float, rounds: int
) -> None:
    rose, greedy = Run(base, algorithm, weights, rounds, learning_rate=rate).learned()
    assert rose >= 0.2
    assert greedy >= -0.05
