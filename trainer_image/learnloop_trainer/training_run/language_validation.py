"""A language model judged along its training: which weights were best so far, and whether it is worth going on."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from learnloop_trainer.language.learning import LanguageLearner
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import Episode
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.training_run.validation import USUAL_EPISODES, ValidationRecord

Hold = Callable[[AbstractContextManager[Any]], Sequence[Episode]]
"""The conversations of the model that speaks in the context. Collective; all ranks have all of them."""
WEIGHTS = "vector"
"""What learns, as one array."""


@dataclass(slots=True)
class LanguageValidation(ValidationRecord):
    """Of a language model: its steps are the episodes or pairs that it has learned from."""

    hold: Hold = field(kw_only=True)

    def note(self, learner: LanguageLearner, tell: Callable[[str], object] = lambda doing: None) -> dict[str, float]:
        """Collective, before training and after each round: evaluate where it is time. Returns points of curves.

        `tell`: hears what the rank is busy with.
        """
        self.finished = learner.step
        occasion = learner.step // (self.asked.every_steps or self.asked.every_episodes or USUAL_EPISODES)
        if self.steps and occasion <= self.due:
            return {}
        self.due = occasion
        tell(f"validation: holding {self.asked.episodes} conversations")
        mean = float(np.mean([episode.reward for episode in self.hold(learner.network.sampling())]))
        tell(f"validation: {self.asked.episodes} conversations held")
        word = self.judge(learner.step, mean, lambda: {WEIGHTS: learner.network.vector.detach().cpu().numpy()})
        say(f"validation at step {learner.step}: mean {mean:.3f} over {self.asked.episodes} conversations, {word}")
        return {"validation": mean}

    def keep_best(self, network: LanguageNetwork) -> None:
        """The network has the best weights from here on; nothing happens where nothing was evaluated."""
        if self.best:
            with torch.no_grad():
                network.vector.copy_(torch.from_numpy(self.best[WEIGHTS]))
