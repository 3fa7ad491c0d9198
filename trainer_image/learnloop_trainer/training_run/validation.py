"""Evaluates along training, and keeps the best weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.evaluation import WhileTraining
from learnloop_api.wire.training import ValidationPoint, ValidationReport
from learnloop_trainer import algorithms, distributed, progress_reporter, training_order
from learnloop_trainer.algorithms.maml import Maml
from learnloop_trainer.evaluation.held_out_episodes import held_out, play
from learnloop_trainer.export.exported_policy import Behaving, written
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.neural.networks import Floats
from learnloop_trainer.store.run_store import Arrays, part, under

FIRST = 100_000
"""Number of the first episode: above those of the proof and of a study's choice, below the suite's. Every evaluation
plays the same ones, so that two of them differ by their policies alone."""
USUAL_EPISODES = 100
MOST_POINTS = 1000


Tell = Callable[[str], None]
"""Hears what the rank is busy with."""


class Judged(Protocol):
    """A policy or a language model that learns."""

    @property
    def first(self) -> bool:
        """Whether it is judged before it learns, too."""

    def weights(self) -> Mapping[str, Floats]:
        """Those that would be exported now."""

    def mean(self, weights: Mapping[str, Floats], episodes: int, tell: Tell) -> float:
        """Collective: the mean return of these weights."""

    def take(self, weights: Mapping[str, Floats]) -> None:
        """Have these weights from here on."""


@dataclass(slots=True)
class Validation:
    """Equal on all ranks: what was measured so far, and the best weights. A language model's steps are episodes."""

    wanted: WhileTraining
    judged: Judged
    finished: int = 0  # training episodes, of all ranks
    due: int = 0  # number of the next evaluation's occasion
    steps: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    best: dict[str, Floats] = field(default_factory=dict)
    waited: int = 0  # evaluations since the best one
    over: bool = False

    def begin(self, step: int, tell: Tell) -> None:
        """Collective, before training: judge what is one to choose from already."""
        if self.judged.first and not self.means:
            self.measure(step, tell)

    def note(self, step: int, ended: int, tell: Tell) -> float | None:
        """Collective, after each round: evaluate where it is time; returns the mean. `ended`: episodes of all ranks."""
        self.finished += ended
        every = self.wanted.every_steps
        occasion = step // every if every else self.finished // (self.wanted.every_episodes or USUAL_EPISODES)
        if occasion <= self.due:
            return None
        self.due = occasion
        return self.measure(step, tell)

    def measure(self, step: int, tell: Tell) -> float:
        """Collective: evaluate now, and keep the weights where they are the best."""
        weights = self.judged.weights()
        mean = self.judged.mean(weights, self.wanted.episodes, tell)
        better = not self.means or mean > max(self.means)
        self.steps.append(step)
        self.means.append(mean)
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = {name: np.array(array) for name, array in weights.items()}
        self.over = self.wanted.patience is not None and self.waited >= self.wanted.patience
        word = "the best so far" if better else f"no better for {self.waited} evaluations"
        progress_reporter.say(
            f"validation at step {step}: mean {mean:.3f} over {self.wanted.episodes} episodes, {word}"
        )
        return mean

    def keep_best(self) -> None:
        """Give the network the best weights from here on; nothing happens where nothing was evaluated."""
        if self.best:
            self.judged.take(self.best)

    def report(self, exported: bool, step: int, total: int) -> ValidationReport:
        points = [ValidationPoint(step=at, mean=mean) for at, mean in zip(self.steps, self.means, strict=True)]
        return ValidationReport(
            episodes=self.wanted.episodes,
            points=points[-MOST_POINTS:],
            best_step=self.steps[int(np.argmax(self.means))] if self.means else None,
            exported="best" if exported and self.best else "last",
            ended_early=self.over and step < total,
        )

    def state(self) -> Arrays:
        numbers: list[NDArray[np.generic]] = [
            np.asarray([self.finished, self.due, self.waited, self.over], dtype=np.int64),
            np.asarray(self.steps, dtype=np.int64),
            np.asarray(self.means, dtype=np.float64),
        ]
        arrays: Arrays = dict(zip(("counts", "steps", "means"), numbers, strict=True))
        return arrays | under("best", {name: np.asarray(array) for name, array in self.best.items()})

    def restore(self, state: Arrays) -> None:
        self.finished, self.due, self.waited, over = (int(count) for count in state["counts"])
        self.over = bool(over)
        self.steps, self.means = state["steps"].tolist(), state["means"].tolist()
        self.best = {name: np.array(array, dtype=np.float32) for name, array in part(state, "best").items()}


@dataclass(frozen=True, slots=True)
class JudgedPolicy:
    """A policy, played as it would be exported and served."""

    learner: algorithms.Learner
    order: training_order.Order
    group: distributed.Group

    @property
    def first(self) -> bool:
        return self.learner.network.warm  # what serves is one to choose from

    def weights(self) -> dict[str, Floats]:
        """Those that would be exported now; of meta-learning those adapted to the nominal task."""
        learner = self.learner
        if not isinstance(learner, Maml) or learner.step >= self.order.spec.total_steps or not learner.step:
            return learner.network.exported()
        return {name: array.cpu().numpy() for name, array in learner.adapted_to(learner.nominal()).items()}

    def mean(self, weights: Mapping[str, Floats], episodes: int, tell: Tell) -> float:
        own = _played(self.learner, weights, episodes, self.order, tell) if self.group.place.rank == 0 else 0.0
        (mean,) = self.group.sum([own])
        return mean

    def take(self, weights: Mapping[str, Floats]) -> None:
        network = self.learner.network
        flat = np.concatenate([weights[name].ravel() for name in network.shapes])
        with torch.no_grad():
            network.vector.copy_(torch.from_numpy(flat))
        network.fixed = {name: weights[name] for name in network.fixed}
        network.actor()


def _played(
    learner: algorithms.Learner, weights: Mapping[str, Floats], episodes: int, order: training_order.Order, tell: Tell
) -> float:
    """The mean return of these weights, acting as they would be served."""
    policy = Behaving(written(order, learner.environment, weights)[1], order.spec.seed)
    alive = lambda done: tell(f"validation: {done}/{episodes} episodes")  # noqa: E731
    returns, _ = play(held_out(order, first=FIRST), policy, order.spec.seed, episodes, alive)
    return float(returns.mean())


WEIGHTS = "vector"
"""All that a language model learns, as one array."""


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """A language model. `hold`: the mean reward of the conversations it holds now; collective."""

    network: LanguageNetwork
    hold: Callable[[], float]
    first = True

    def weights(self) -> dict[str, Floats]:
        return {WEIGHTS: self.network.vector.detach().cpu().numpy()}

    def mean(self, weights: Mapping[str, Floats], episodes: int, tell: Tell) -> float:
        del weights
        tell(f"validation: holding {episodes} conversations")
        mean = self.hold()
        tell(f"validation: {episodes} conversations held")
        return mean

    def take(self, weights: Mapping[str, Floats]) -> None:
        with torch.no_grad():
            self.network.vector.copy_(torch.from_numpy(weights[WEIGHTS]))
