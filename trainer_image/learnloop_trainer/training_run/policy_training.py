"""Training of a policy of numbers: how it begins, learns round by round, and its part of a checkpoint."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch

from learnloop_environments import VectorEnvironment, multipliers, spaces, wrappers
from learnloop_environments.interfaces.foreign_spaces import refuse_images
from learnloop_trainer import baseline_policy, distributed, recordings, training_order
from learnloop_trainer.algorithms import Learner, Occasion, learner, maml, traits_of
from learnloop_trainer.algorithms.base import advise
from learnloop_trainer.evaluation.suite.dimensions import Milestones
from learnloop_trainer.export.exported_policy import behaviour_of, require_judgeable
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import Arrays, part, under
from learnloop_trainer.training_run import (
    initial_policy,
    kl_bound,
    logged_experience,
    reward_rules,
    training_environment,
)
from learnloop_trainer.training_run.curriculum import CurriculumProgress
from learnloop_trainer.training_run.reported_figures import ActionTally, Episodes, learner_figures, no_episodes
from learnloop_trainer.training_run.training_loop import Run
from learnloop_trainer.training_run.validation import JudgedPolicy, Validation


def milestones(order: training_order.Order) -> Milestones | None:
    """Keeper of the weights along training, where sample efficiency is to be measured."""
    suite, algorithm = order.spec.evaluation.suite, order.spec.algorithm
    if suite is None or "sample-efficiency" not in suite.dimensions:
        return None
    return Milestones(order.spec.total_steps, traits_of(algorithm).perceptrons)


@dataclass(slots=True)
class PolicyTraining:
    """Training of a policy of numbers; see training_loop.Training."""

    title: str
    learner: Learner
    environment: VectorEnvironment
    observation: spaces.Observations
    episodes: Episodes
    curriculum: CurriculumProgress | None = None
    milestones: Milestones | None = None
    begun_from: str = ""
    read: recordings.ReadExperience = field(default_factory=recordings.ReadExperience)
    validation: Validation | None = None
    penalties: multipliers.Multipliers | None = None
    bound: kl_bound.KlBound | None = None
    _tally: ActionTally = field(default_factory=ActionTally)
    _losses: dict[str, float] = field(default_factory=dict)

    @property
    def recent(self) -> deque[float]:
        return self.episodes.recent

    @property
    def over(self) -> bool:
        return self.bound is not None and self.bound.ended

    def own(self) -> Arrays:
        own = under("own", self.learner.own()) | {"running": self.episodes.running, "age": self.episodes.age}
        return own | under("environment", self.environment.state() or {})

    def further(self) -> Arrays:
        arrays: Arrays = {}
        if self.curriculum is not None:
            arrays |= under("curriculum", self.curriculum.state())
        if self.milestones is not None:
            arrays |= under("milestones", self.milestones.state())
        if self.penalties is not None:
            arrays["multipliers"] = self.penalties.values.copy()
        if self.read.proof is not None:
            arrays |= under("proof", self.read.proof.arrays())
        return arrays

    def restore(self, arrays: Arrays, place: training_order.Place) -> str:
        members, note = place.share(len(arrays["each/running"])), ""
        each = {name: array[members.start : members.stop] for name, array in part(arrays, "each").items()}
        self.learner.restore(part(arrays, "shared"), part(each, "own"))
        inner = part(each, "environment")
        if inner:
            self.observation = self.environment.restore(inner)
            self.episodes.running = np.array(each["running"], dtype=np.float64)
            self.episodes.age = np.array(each.get("age", self.episodes.age), dtype=np.int64)
        else:
            note = "; this environment cannot be saved, its episodes begin again"
        if self.curriculum is not None:
            self.curriculum.restore(part(arrays, "curriculum"))
            wrappers.innermost(self.environment).level = self.curriculum.level
            note += f"; level {self.curriculum.name}"
        if self.milestones is not None:
            self.milestones.restore(part(arrays, "milestones"))
        if self.penalties is not None:
            self.penalties.values = np.array(arrays["multipliers"], dtype=np.float64)
        self.read.proof = recordings.Recording.of(part(arrays, "proof"))
        return note

    def iterate(self, run: Run) -> None:
        learner, total = self.learner, run.order.spec.total_steps
        before, weights = learner.step, self.bound.weights() if self.bound is not None else {}
        self.observation, experiences = learner.iterate(self.observation)
        if self.bound is not None:
            self.bound.hold(before, weights, self.observation)
        if self.milestones is not None:
            self.milestones.note(before, learner.step, learner.network)
        losses: dict[str, float] = {}
        for experience in experiences:
            self.episodes.note(experience.reward, experience.ended)
            self._tally.note(experience.actions, self.environment.actions)
            losses |= experience.losses
        if self.penalties is not None:
            losses |= self.penalties.ascend(run.group.sum)
        self._losses |= losses
        if self.read.note is not None:
            run.reporter.caution(self.read.note.message)
        run.reporter.progress(
            learner.step,
            self.recent,
            losses,
            self.episodes.trail,
            figures=lambda: (
                learner_figures(learner, total, self._losses) | self._tally.take() | self.episodes.figures()
            ),
        )
        if self.curriculum is not None:
            self._climb(self.curriculum, run)
        if self.validation is not None:
            (ended,) = run.group.sum([float(sum(int(experience.ended.sum()) for experience in experiences))])
            self.validation.note(learner.step, int(ended), run.reporter.alive)
            if isinstance(learner, maml.Maml) and self.validation.over and learner.step < total:
                learner.finish()

    def _climb(self, curriculum: CurriculumProgress, run: Run) -> None:
        """Collective: the same level on all ranks, from what ended on all of them."""
        counted = wrappers.outermost(self.environment, wrappers.Counted)
        assert counted is not None  # training_environment has put it there
        episodes, successes, total = run.group.sum([float(count) for count in counted.take()])
        moved = curriculum.note(int(episodes), int(successes), total)
        if moved:
            wrappers.innermost(self.environment).level = curriculum.level
            self.episodes.trail.clear()
            word = "up" if moved > 0 else "back"
            why = f"{word} to level {curriculum.name} at step {self.learner.step}: {curriculum.evidence}"
            run.reporter.phase("training", why)


def begin(
    order: training_order.Order, group: distributed.Group, device: torch.device, store: Store | None = None
) -> PolicyTraining:
    """A training at step 0; raises ConfigError when algorithm and environment do not fit."""
    spec = order.spec
    members = group.place.share(order.parameters.environments)
    policy = reward_rules.policy_in_force(order, store)
    penalties = training_environment.penalties_of(order, policy)
    environment = training_environment.training_world(order, members, policy, penalties)
    training_environment.require_fitting_actions(order, environment)
    refuse_images(spec.data.world, getattr(wrappers.innermost(environment), "space", None))
    # What cannot be exported, or judged, is not trained.
    require_judgeable(order, behaviour_of(order, environment.bounds), environment.bounds)
    if store is not None and spec.data.environment is not None and group.place.rank == 0:
        baseline_policy.require_playable(order, store, environment)

    log = logged_experience.RunLog(order, group, store, environment, policy)
    count = order.parameters.environments
    occasion = Occasion(spec.seed, spec.total_steps, count, group, log.recorded, log.remembered)
    algorithm: Learner = learner(order.parameters, environment, occasion, device)
    advise(environment, algorithm, traits_of(spec.algorithm), spec.seed)
    begun = initial_policy.begin_from(order, algorithm, store) if store is not None else ""
    curriculum, points = training_environment.levels(environment, order), milestones(order)
    title, episodes = f"{spec.algorithm} on {spec.data.world}", no_episodes(len(members))
    observation = environment.reset()
    validation = None
    if spec.evaluation.while_training is not None:
        validation = Validation(spec.evaluation.while_training, JudgedPolicy(algorithm, order, group))
    bound = kl_bound.bound_of(order, algorithm, store) if store is not None else None
    facts = curriculum, points, begun, log.read, validation, penalties, bound
    return PolicyTraining(title, algorithm, environment, observation, episodes, *facts)
