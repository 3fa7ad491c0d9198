"""A reward model: one number for an answer, such that differences say which of two answers people prefer.

Bradley & Terry (1952); as the reward of language models: Stiennon et al. (2020), arXiv 2009.01325. With s the score of
an answer, read by a linear head at its last token:

    L = -log sigmoid(s_c - s_r) + lambda (s_c^2 + s_r^2) / 2

The second term fixes what differences leave open. Some pairs are held out and never learned from. `totalSteps` counts
pairs, again and again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language import losses
from learnloop_trainer.language.algorithms.sft import numbers
from learnloop_trainer.language.algorithms.traits import LanguageTraits, register
from learnloop_trainer.language.learning import Arrays, Round, Setting, Sums, position
from learnloop_trainer.language.pairs import Divided, divided, updated
from learnloop_trainer.language.rows import Pair, make

CURVES = ("loss", "margin", "accuracy", "chosen_score", "rejected_score")


class BradleyTerry:
    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        """At step 0; the pairs are fetched by the first `iterate`, or restored."""
        self.parameters, self.setting, self.network, self.step = parameters, setting, setting.network, 0
        self._divided: Divided | None = None

    @property
    def pairs(self) -> Divided:
        """All pairs, divided. Collective the first time; raises ConfigError for too few."""
        if self._divided is None:
            every = self.setting.experience.pairs(self.network)
            self._divided = divided(every, self.parameters.held_out_share, self.setting.seed)
        return self._divided

    def iterate(self) -> Round:
        """One update."""
        learned, size = self.pairs.learned, self.parameters.batch_pairs
        drawn = [learned[at] for at in numbers(len(learned), size, self.step, self.setting.seed)]
        found = updated(self.parameters, self.setting, drawn, self.step, self._backward, CURVES)
        self.step += size
        return found

    def _backward(self, pairs: Sequence[Pair], size: float, sums: Sums) -> None:
        episodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        scores = self.network.answer_scores(make(episodes, range(len(episodes)), self.network.device))
        half = len(pairs)
        chosen, rejected = scores[:half], scores[half:]
        found = losses.bradley_terry(chosen, rejected)
        small = losses.score_penalty(chosen, rejected)
        loss = (found.sum() + self.parameters.score_decay * small.sum()) / size
        torch.autograd.backward(loss)
        with torch.no_grad():
            sums.add("loss", found.sum(), half)
            sums.add("margin", (chosen - rejected).sum(), half)
            sums.add("accuracy", (chosen > rejected).sum(), half)
            sums.add("chosen_score", chosen.sum(), half)
            sums.add("rejected_score", rejected.sum(), half)

    def shared(self) -> Arrays:
        return self.network.state() | position(self.step) | self.setting.experience.state()

    def restore(self, shared: Mapping[str, NDArray[np.generic]]) -> None:
        self.network.restore(shared)
        self.step = int(shared["step"][0])
        self.setting.experience.restore(shared)


register(LanguageTraits("bradley-terry", BradleyTerry, values=True, scores=True))
