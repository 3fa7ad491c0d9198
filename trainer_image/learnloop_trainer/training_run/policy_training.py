"""Training of a policy of numbers: its environments, its beginning, its rounds, and its part of a checkpoint."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.kinds.training.algorithms import FROM_LOG
from learnloop_api.uniform_policy import parse
from learnloop_api.wire.training import ACTION_SHARE, FIGURES, MOST_ACTIONS
from learnloop_environments import (
    Conditions,
    VectorEnvironment,
    errors,
    make,
    randomness,
    rewarded_by_policy,
    spaces,
    wrappers,
)
from learnloop_environments.interfaces.foreign_spaces import refuse_images
from learnloop_environments.multipliers import Multipliers
from learnloop_trainer import action_shield, baseline_policy, distributed, progress_reporter, recordings, training_order
from learnloop_trainer.algorithms import Learner, Occasion, learner, maml, traits_of
from learnloop_trainer.algorithms.base import Traits, advise, registered
from learnloop_trainer.evaluation.suite.dimensions import Milestones
from learnloop_trainer.export.exported_policy import behaviour_of, require_judgeable
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.saver_and_stopper import Run
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import Arrays, part, under
from learnloop_trainer.training_run import initial_policy, kl_bound, logged_experience, reward_rules
from learnloop_trainer.training_run.curriculum import CurriculumProgress
from learnloop_trainer.training_run.validation import JudgedPolicy, Validation


@dataclass(slots=True)
class Episodes:
    """Undiscounted returns and lengths of this rank's episodes."""

    running: NDArray[np.float64]
    age: NDArray[np.int64]
    lengths: deque[int]
    recent: deque[float]
    trail: deque[float]
    """Of one difficulty, in which the operator looks for anomalies; no part of checkpoints."""

    def note(self, reward: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        """Account for rewards [steps, environments]."""
        for step_reward, step_ended in zip(reward, ended, strict=True):
            self.running += step_reward
            self.age += 1
            if step_ended.any():
                self.lengths.extend(self.age[step_ended].tolist())
                self.age[step_ended] = 0
                ended = self.running[step_ended].tolist()
                self.recent.extend(ended)
                self.trail.extend(ended)
                self.running[step_ended] = 0.0

    def figures(self) -> dict[str, float]:
        return {"episode_length": float(np.mean(self.lengths))} if self.lengths else {}


def no_episodes(count: int) -> Episodes:
    recent, trail = deque[float](maxlen=progress_reporter.RECENT), deque[float](maxlen=progress_reporter.TRAIL)
    return Episodes(np.zeros(count), np.zeros(count, np.int64), deque(maxlen=progress_reporter.RECENT), recent, trail)


_TOTAL = "total"
"""Name of the sum of several losses."""


class ActionTally:
    """Shares of the discrete actions that were taken since the last look."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, actions: NDArray[np.generic] | None, count: int) -> None:
        """Actions of any shape, numbered from 0 to `count` - 1; None: they are not discrete."""
        if actions is None or not np.issubdtype(actions.dtype, np.integer):
            return
        counts = np.bincount(np.asarray(actions, dtype=np.int64).ravel(), minlength=count)
        self._counts = counts if len(counts) != len(self._counts) else self._counts + counts

    def take(self) -> dict[str, float]:
        """The shares, and count again from 0; nothing of more than 32 actions."""
        counts, self._counts = self._counts, np.zeros(0, dtype=np.int64)
        total = counts.sum()
        if not total or len(counts) > MOST_ACTIONS:
            return {}
        return {f"{ACTION_SHARE}{index}": float(count / total) for index, count in enumerate(counts)}


def learner_figures(learner: Any, total_steps: int, losses: Mapping[str, float]) -> dict[str, float]:
    """Figures as `learnloop_api.wire.training` names them; those that the learner does not have are left out.

    Reads tensors, so that a GPU is waited for: once a second is often enough.
    """
    parameters: Any = getattr(learner, "parameters", None)
    figures: dict[str, float] = {}
    done = min(1.0, learner.step / total_steps)
    if hasattr(parameters, "learning_rate") and hasattr(parameters, "learning_rate_schedule"):
        figures["learning_rate"] = step_size(parameters, parameters.learning_rate, done)
    if hasattr(parameters, "epsilon_start"):
        fallen = min(1.0, done / max(1e-9, parameters.exploration_fraction))
        figures["epsilon"] = parameters.epsilon_start + fallen * (parameters.epsilon_end - parameters.epsilon_start)
    norm = getattr(getattr(learner, "network", None), "gradient_norm", None)
    if norm is not None:
        figures["gradient_norm"] = float(norm)
    if hasattr(getattr(learner, "replay", None), "filled"):
        figures["replay_transitions"] = float(learner.replay.filled * len(learner.environment.members))
    shield = wrappers.outermost(learner.environment, action_shield.Shielded)
    if shield is not None:
        figures["invalid_actions"] = float(shield.interventions.sum())
    named = {("loss" if name == _TOTAL else name): value for name, value in losses.items()}
    figures |= {name: float(value) for name, value in named.items() if name in FIGURES}
    return {name: value for name, value in figures.items() if np.isfinite(value)}


SPACES = "spec.data.spaces"


class Unplayed:
    """A VectorEnvironment for learners of logged experience alone."""

    def __init__(self, address: str, members: range) -> None:
        """`address`: of the uniform policy; raises ConfigError when it says too little."""
        fix = "write the spaces, e.g. uniform://discrete/2?observations=4"
        try:
            spec = parse(address)
        except ValueError as error:
            raise errors.ConfigError(SPACES, address, f"is refused: {error}", fix) from None
        if spec.observations is None:
            raise errors.ConfigError(SPACES, address, "has no length of an observation", fix)
        self.observations, self.members = spec.observations, members
        self.actions, self._bounds = spec.choices, None
        if spec.low:
            first = [(0.0, spec.choices - 1.0)] if spec.choices else []
            ends = [*first, *zip(spec.low, spec.high, strict=True)]
            low, high = (np.asarray([end[side] for end in ends], dtype=np.float32) for side in (0, 1))
            try:
                self.actions, self._bounds = len(ends), spaces.Bounds(low, high, spec.choices)
            except ValueError as error:
                raise errors.ConfigError(SPACES, address, f"is refused: {error}", fix) from None

    @property
    def bounds(self) -> spaces.Bounds | None:
        return self._bounds

    def reset(self) -> spaces.Observations:
        return np.zeros((len(self.members), self.observations), dtype=np.float32)

    def step(self, actions: NDArray[Any]) -> spaces.Step:
        """Raises ConfigError."""
        del actions
        fix = "name the environment as spec.data.environment, or learn by bc, cql or iql-offline"
        raise errors.ConfigError("spec.data.environment", "", "is missing, and the run takes a step in it", fix)

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        return {"members": np.asarray(self.members)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> spaces.Observations:
        del state
        return self.reset()

    def close(self) -> None:
        """See VectorEnvironment.close."""


def _require_fitting_actions(order: training_order.Order, environment: VectorEnvironment) -> None:
    algorithm, name = order.spec.algorithm, order.spec.data.world
    field, traits = SPACES if order.spec.data.environment is None else spaces.FIELD, traits_of(algorithm)
    team, single = spaces.agents(environment) > 1, not traits.team
    if team and single:
        problem, fix = f"has a team of agents, {algorithm} trains one", "qmix, independent-dqn or maddpg"
        raise errors.ConfigError(field, name, problem, f"set algorithm to {fix}")
    if not team and not single:
        problem = f"has one agent, {algorithm} trains teams"
        raise errors.ConfigError(
            field, name, problem, "choose an environment with a team, or set algorithm to ppo, dqn or sac"
        )
    kind = spaces.ActionSpace.of(environment).type
    if kind not in traits.actions:
        *most, last = sorted(traits.actions)
        problem = f"has {kind} actions, {algorithm} needs {', '.join(most)}{' or ' * bool(most)}{last} ones"
        alike = [other.name for other in registered() if kind in other.actions and _for_the_same_use(traits, other)]
        fix = f"set algorithm to {' or '.join(alike)}" if alike else "choose another environment"
        raise errors.ConfigError(field, name, problem, fix)


def _for_the_same_use(traits: Traits, other: Traits) -> bool:
    """Learns as many agents from the same source, and asks no more of an environment than its actions."""
    special = other.meta_learned or other.chooser is not None
    return (other.team, other.recorded) == (traits.team, traits.recorded) and not special


def training_world(
    order: training_order.Order,
    members: range,
    policy: RewardPolicySpec | None = None,
    penalties: Multipliers | None = None,
) -> VectorEnvironment:
    """The run's training environments: under its conditions, counted, rewarded by `policy`, shaped and shielded."""
    spec, data = order.spec, order.spec.data
    if data.environment is None:
        return action_shield.shielded(
            _unplayed(order, members), spec.safety, action_shield.Trail(order.job), exploring=True
        )
    randomise = tuple((item.parameter, item.low, item.high) for item in data.randomise)
    conditions = Conditions(data.level, randomise, data.credit or "team", data.max_steps_per_episode)
    environment = make(data.environment, randomness.Split.TRAINING, spec.seed, members, conditions)
    if spec.curriculum is not None:
        environment = wrappers.Counted(environment)
    if policy is not None:
        if not traits_of(spec.algorithm).recorded:
            rewarded_by_policy.require_measured(policy)
        environment = rewarded_by_policy.Rewarded(environment, policy, data.success_return, penalties)
    if spec.shaping is not None:
        discount = float(getattr(order.parameters, "discount", 1.0))
        shaping = spec.shaping
        environment = wrappers.Shaped(
            environment, discount, potential=shaping.potential, bonus=shaping.coordination_bonus
        )
    return action_shield.shielded(environment, spec.safety, action_shield.Trail(order.job), exploring=True)


def penalties_of(order: training_order.Order, policy: RewardPolicySpec | None) -> Multipliers | None:
    """Multipliers of the policy's constraints, where the order wants them learned; raises ConfigError without any."""
    rate = getattr(order.parameters, "lagrangian_learning_rate", None)
    if rate is None:
        return None
    if policy is None or not policy.constraints:
        problem = "learns multipliers of a RewardPolicy's constraints, and there are none"
        fix = "set spec.data.rewards to policy and give the RewardPolicy constraints, or leave it out"
        raise errors.ConfigError("spec.hyperparameters.lagrangianLearningRate", rate, problem, fix)
    return Multipliers(policy.constraints, rate)


def _unplayed(order: training_order.Order, members: range) -> VectorEnvironment:
    """Placeholder of an environment; raises ConfigError where something would play it."""
    spec, missing = order.spec, "is missing"
    if not traits_of(spec.algorithm).recorded:
        able = ", ".join(FROM_LOG)
        problem = f"{missing}: {spec.algorithm} plays it"
        raise errors.ConfigError("spec.data.environment", "", problem, f"name it, or set algorithm to one of {able}")
    evaluation = spec.evaluation
    settings: dict[str, Resource | None] = {"curriculum": spec.curriculum, "shaping": spec.shaping}
    settings |= {"evaluation.suite": evaluation.suite, "evaluation.whileTraining": evaluation.while_training}
    for name, wanted in settings.items():
        if wanted is not None:
            problem = f"{missing}: spec.{name} plays it"
            raise errors.ConfigError("spec.data.environment", "", problem, f"name it, or leave {name} out")
    return Unplayed(spec.data.spaces or "", members)


def levels(environment: VectorEnvironment, order: training_order.Order) -> CurriculumProgress | None:
    """The curriculum the order asks for, at its beginning."""
    if order.spec.curriculum is None:
        return None
    world = wrappers.innermost(environment)
    return CurriculumProgress(getattr(world, "LEVELS", ()), getattr(world, "level", 0), order.spec.curriculum)


def milestones(order: training_order.Order) -> Milestones | None:
    """Keeper of the weights along training, where sample efficiency is to be measured."""
    suite, algorithm = order.spec.evaluation.suite, order.spec.algorithm
    if suite is None or "sample-efficiency" not in suite.dimensions:
        return None
    return Milestones(order.spec.total_steps, traits_of(algorithm).perceptrons)


@dataclass(slots=True)
class PolicyTraining:
    """Training of a policy of numbers; see checkpoints.Training."""

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
    penalties: Multipliers | None = None
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
        assert counted is not None  # training_world has put it there
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
    penalties = penalties_of(order, policy)
    environment = training_world(order, members, policy, penalties)
    _require_fitting_actions(order, environment)
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
    curriculum, points = levels(environment, order), milestones(order)
    title, episodes = f"{spec.algorithm} on {spec.data.world}", no_episodes(len(members))
    observation = environment.reset()
    validation = None
    if spec.evaluation.while_training is not None:
        validation = Validation(spec.evaluation.while_training, JudgedPolicy(algorithm, order, group))
    bound = kl_bound.bound_of(order, algorithm, store) if store is not None else None
    facts = curriculum, points, begun, log.read, validation, penalties, bound
    return PolicyTraining(title, algorithm, environment, observation, episodes, *facts)
