"""Direct preference optimisation, with the likelihood of what was preferred.

Rafailov et al. (2023), arXiv 2305.18290; the second term: Pang et al. (2024), arXiv 2404.19733. With sums l over the
tokens of an answer, r of the base model and n tokens in the chosen answer:

    L = -log sigmoid(beta ((l_c - r_c) - (l_r - r_r))) - alpha l_c / n

Without the second term both answers may become unlikely, and the model's best answer with them: in the tiny world the
sampled success rises and the greedy one falls. `totalSteps` counts pairs, again and again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.errors import ConfigError
from learnloop_trainer.language import losses
from learnloop_trainer.language.algorithms.sft import numbers
from learnloop_trainer.language.algorithms.traits import LanguageTraits, register
from learnloop_trainer.language.learning import Arrays, Round, Setting, Sums, position
from learnloop_trainer.language.pairs import updated
from learnloop_trainer.language.rows import Pair, TokenBatch, make

CURVES = ("loss", "margin", "accuracy", "chosen_log_prob", "rejected_log_prob")


class Dpo:
    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        """At step 0; the pairs are fetched by the first `iterate`, or restored."""
        self.parameters, self.setting, self.network, self.step = parameters, setting, setting.network, 0
        self._pairs: Sequence[Pair] | None = None

    def _fetched(self) -> Sequence[Pair]:
        if self._pairs is None:
            self._pairs = self.setting.experience.pairs(self.network)
            if not self._pairs:
                fix = "collect preferences by POST /api/v1/preferences, or set spec.dpo.pairs to episodes"
                raise ConfigError("spec.data", "", "has no pairs that prefer one answer to another", fix)
        return self._pairs

    def iterate(self) -> Round:
        """One update."""
        every, size = self._fetched(), self.parameters.batch_pairs
        drawn = [every[at] for at in numbers(len(every), size, self.step, self.setting.seed)]
        found = updated(self.parameters, self.setting, drawn, self.step, self._backward, CURVES)
        self.step += size
        return found

    def _backward(self, pairs: Sequence[Pair], size: float, sums: Sums) -> None:
        episodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        batch = make(episodes, range(len(episodes)), self.network.device)
        base = _answers(self.network.score_base(batch), batch)
        answers = _answers(self.network.score(batch).log_prob, batch)
        half = len(pairs)
        found, margin = losses.preference(
            answers[:half], answers[half:], base[:half], base[half:], self.parameters.beta
        )
        lengths = torch.tensor([pair.chosen.sampled for pair in pairs], dtype=torch.float32, device=answers.device)
        likelihood = losses.negative_log_likelihood(answers[:half], 1.0 / lengths)
        loss = (found.sum() + self.parameters.nll_coefficient * likelihood) / size
        torch.autograd.backward(loss)
        with torch.no_grad():
            sums.add("loss", found.sum(), half)
            sums.add("margin", margin.sum(), half)
            sums.add("accuracy", (margin > 0).sum(), half)
            sums.add("chosen_log_prob", answers[:half].sum(), half)
            sums.add("rejected_log_prob", answers[half:].sum(), half)

    def shared(self) -> Arrays:
        return self.network.state() | position(self.step) | self.setting.experience.state()

    def restore(self, shared: Mapping[str, NDArray[np.generic]]) -> None:
        self.network.restore(shared)
        self.step = int(shared["step"][0])
        self.setting.experience.restore(shared)


def _answers(log_prob: torch.Tensor, batch: TokenBatch) -> torch.Tensor:
    """Sums over the tokens of each answer: [episodes]."""
    return log_prob.new_zeros(len(batch.members)).index_add(0, batch.episode, log_prob)


register(LanguageTraits("dpo", Dpo, base=True))
