"""Evaluates along training, and keeps the best weights."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.evaluation import WhileTraining
from learnloop_api.wire.training import Validated, ValidationPoint
from learnloop_trainer.algorithms import Learner
from learnloop_trainer.algorithms.maml import Maml
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.evaluation.held_out_episodes import held_out, play
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.export.behaviour import behaviour_of
from learnloop_trainer.language.network import LanguageLearner, LanguageNetwork
from learnloop_trainer.language.rows import Episode
from learnloop_trainer.manifest.proof import graph
from learnloop_trainer.neural.networks import Floats, Network
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.safety import Shield
from learnloop_trainer.store.run_store import Arrays, part, under
from learnloop_trainer.training_order import Order

FIRST = 100_000
"""Number of the first episode: above those of the proof and of a study's choice, below the suite's. Every evaluation
plays the same ones, so that two of them differ by their policies alone."""
USUAL_EPISODES = 100
MOST_POINTS = 1000


@dataclass(slots=True)
class ValidationRecord:
    """Equal on all ranks: what was measured so far, and the best weights, of policies and of language models."""

    wanted: WhileTraining
    finished: int = 0  # training episodes, of all ranks
    due: int = 0  # number of the next evaluation's occasion
    steps: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    best: dict[str, Floats] = field(default_factory=dict)
    waited: int = 0  # evaluations since the best one
    over: bool = False

    def judge(self, step: int, mean: float, weights: Callable[[], Mapping[str, Floats]]) -> str:
        """Keep what was measured at `step`, and the weights where they are the best; returns how good they are."""
        better = not self.means or mean > max(self.means)
        self.steps.append(step)
        self.means.append(mean)
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = {name: np.array(array) for name, array in weights().items()}
        self.over = self.wanted.patience is not None and self.waited >= self.wanted.patience
        return "the best so far" if better else f"no better for {self.waited} evaluations"

    def told(self, exported: bool, step: int, total: int) -> Validated:
        points = [ValidationPoint(step=at, mean=mean) for at, mean in zip(self.steps, self.means, strict=True)]
        return Validated(
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


class ValidationState(ValidationRecord):
    """Of a policy: played as it would be exported and served."""

    __slots__ = ()

    def note(self, learner: Learner, ended: int, order: Order, group: Group, reporter: Reporter) -> None:
        """Collective, after each round: evaluate where it is time, by rank 0; `ended`: of this rank's episodes."""
        (total,) = group.sum([float(ended)])
        self.finished += int(total)
        every = self.wanted.every_steps
        occasion = learner.step // every if every else self.finished // (self.wanted.every_episodes or USUAL_EPISODES)
        if occasion <= self.due:
            return
        self.due = occasion
        self.measure(learner, order, group, reporter)

    def measure(self, learner: Learner, order: Order, group: Group, reporter: Reporter) -> None:
        """Collective: evaluate the policy as it would be exported now."""
        weights, mean = exported(learner, order), 0.0
        if group.place.rank == 0:
            mean = _played(learner, weights, self.wanted.episodes, order, reporter)
        (mean,) = group.sum([mean])
        word = self.judge(learner.step, mean, lambda: weights)
        say(f"validation at step {learner.step}: mean {mean:.1f} over {self.wanted.episodes} episodes, {word}")

    def keep_best(self, network: Network) -> None:
        """The network has the best weights from here on; nothing happens where nothing was evaluated."""
        if not self.best:
            return
        flat = np.concatenate([self.best[name].ravel() for name in network.shapes])
        with torch.no_grad():
            network.vector.copy_(torch.from_numpy(flat))
        network.fixed = {name: self.best[name] for name in network.fixed}
        network.actor()


def exported(learner: Learner, order: Order) -> dict[str, Floats]:
    """Weights that would be exported now; of meta-learning those adapted to the nominal task."""
    if not isinstance(learner, Maml) or learner.step >= order.spec.total_steps or not learner.step:
        return learner.network.exported()
    return {name: array.cpu().numpy() for name, array in learner.adapted_to(learner.nominal()).items()}


def _played(learner: Learner, weights: dict[str, Floats], episodes: int, order: Order, reporter: Reporter) -> float:
    """The mean return of these weights, acting as they would be served."""
    spec, world = order.spec, learner.environment
    bounds, shield = world.bounds, None
    if spec.safety is not None:
        shield = Shield(spec.safety, world.observations, world.actions, continuous=bounds is not None)
    facts = {"learnloop.algorithm": spec.algorithm, "learnloop.job": order.job}
    body = graph(weights, spec.algorithm, facts, bounds, shield, behaviour_of(order, bounds))
    policy = Behaving(OnnxPolicy(body, world.observations, world.actions, continuous=bounds is not None), spec.seed)
    tell = lambda done: reporter.alive(f"validation: {done}/{episodes} episodes")  # noqa: E731
    returns, _ = play(held_out(order, first=FIRST), policy, spec.seed, episodes, tell)
    return float(returns.mean())


def validation(order: Order) -> ValidationState | None:
    wanted = order.spec.evaluation.while_training
    return None if wanted is None else ValidationState(wanted)


Hold = Callable[[AbstractContextManager[Any]], Sequence[Episode]]
"""The conversations of the model that speaks in the context. Collective; all ranks have all of them."""
WEIGHTS = "vector"
"""The learner's state as one array."""


@dataclass(slots=True)
class LanguageValidation(ValidationRecord):
    """Of a language model: its steps are the episodes or pairs that it has learned from."""

    hold: Hold = field(kw_only=True)

    def note(self, learner: LanguageLearner, tell: Callable[[str], object] = lambda doing: None) -> dict[str, float]:
        """Collective, before training and after each round: evaluate where it is time. Returns points of curves.

        `tell`: hears what the rank is busy with.
        """
        self.finished = learner.step
        occasion = learner.step // (self.wanted.every_steps or self.wanted.every_episodes or USUAL_EPISODES)
        if self.steps and occasion <= self.due:
            return {}
        self.due = occasion
        tell(f"validation: holding {self.wanted.episodes} conversations")
        mean = float(np.mean([episode.reward for episode in self.hold(learner.network.sampling())]))
        tell(f"validation: {self.wanted.episodes} conversations held")
        word = self.judge(learner.step, mean, lambda: {WEIGHTS: learner.network.vector.detach().cpu().numpy()})
        say(f"validation at step {learner.step}: mean {mean:.3f} over {self.wanted.episodes} conversations, {word}")
        return {"validation": mean}

    def keep_best(self, network: LanguageNetwork) -> None:
        """The network has the best weights from here on; nothing happens where nothing was evaluated."""
        if self.best:
            with torch.no_grad():
                network.vector.copy_(torch.from_numpy(self.best[WEIGHTS]))
