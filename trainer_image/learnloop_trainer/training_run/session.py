"""One rank's training, from the first observation to the final durable checkpoint."""

import signal
import time
from types import FrameType

import torch

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_environments import Conditions, VectorEnvironment, make
from learnloop_environments.action_spaces import FIELD, ActionType
from learnloop_environments.base import agents
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_environments.rewarded import Rewarded
from learnloop_environments.wrappers import Counted, Shaped, Wrapper, innermost
from learnloop_trainer.algorithms import Occasion, learner, traits_of
from learnloop_trainer.algorithms.shield_advice import advise
from learnloop_trainer.distributed.collectives import Group
from learnloop_trainer.distributed.rendezvous import settled
from learnloop_trainer.errors import PeerLost, StoreRefused, Terminated
from learnloop_trainer.evaluation.suite.milestones import Milestones
from learnloop_trainer.export.behaviour import behaviour_of
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.recordings.recording import Recording
from learnloop_trainer.safety import Trail, shielded
from learnloop_trainer.store import Store
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import Saver, Training, no_episodes, restore, save
from learnloop_trainer.training_run.curriculum import Curriculum
from learnloop_trainer.training_run.initial_policy import begin_from
from learnloop_trainer.training_run.logged_experience import ReadExperience, recorded, remembered
from learnloop_trainer.training_run.reward_rules import policy_in_force

FLUSH_SECONDS = 20.0  # of the usual 30 s between SIGTERM and SIGKILL
SETTLED_SECONDS = 30.0
SETTLED_SAVES = 2  # the second is taken only when the first is no longer under way: the group makes progress
MOST_OF_TIME = 0.015  # share of the time that checkpoints may take


class Stopper:
    """Turns SIGTERM into a request while training, and into Terminated at once everywhere else."""

    def __init__(self) -> None:
        """Not yet installed."""
        self.requested = False
        self.graceful = False

    def install(self) -> None:
        """Listen for SIGTERM; main thread only."""
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
        if not self.graceful:
            raise Terminated("SIGTERM: leaving")


def _require_fitting_actions(order: Order, environment: VectorEnvironment) -> None:
    algorithm, name = order.spec.algorithm, order.spec.data.environment
    traits = traits_of(algorithm)
    team, single = agents(environment) > 1, not traits.team
    if team and single:
        problem, fix = f"has a team of agents, {algorithm} trains one", "qmix, independent-dqn or maddpg"
        raise ConfigError(FIELD, name, problem, f"set algorithm to {fix}")
    if not team and not single:
        problem = f"has one agent, {algorithm} trains teams"
        raise ConfigError(
            FIELD, name, problem, "choose an environment with a team, or set algorithm to ppo, dqn or sac"
        )
    if environment.bounds is None and ActionType.DISCRETE not in traits.actions:
        fix = "qmix or independent-dqn" if team else "ppo or dqn"
        problem = f"has discrete actions, {algorithm} needs continuous ones"
        raise ConfigError(FIELD, name, problem, f"set algorithm to {fix}")
    if environment.bounds is not None and traits.actions == {ActionType.DISCRETE}:
        problem = f"has continuous actions, {algorithm} needs discrete ones"
        raise ConfigError(FIELD, name, problem, f"set algorithm to {'maddpg' if team else 'sac or ppo'}")
    if environment.bounds is not None and environment.bounds.choices and ActionType.HYBRID not in traits.actions:
        problem = f"has hybrid actions, a choice and numbers that go with it, which {algorithm} cannot learn"
        raise ConfigError(FIELD, name, problem, f"set algorithm to {'maddpg' if team else 'ppo'}")


def training_world(order: Order, members: range, policy: RewardPolicySpec | None = None) -> VectorEnvironment:
    """The run's training environments: under its conditions, counted, rewarded by `policy`, shaped and shielded."""
    spec, data = order.spec, order.spec.data
    randomise = tuple((item.parameter, item.low, item.high) for item in data.randomise)
    conditions = Conditions(data.level, randomise, data.credit or "team")
    environment = make(data.environment, Split.TRAINING, spec.seed, members, conditions)
    if spec.curriculum is not None:
        environment = Counted(environment)
    if policy is not None:
        environment = Rewarded(environment, policy, data.success_return)
    if spec.shaping is not None:
        discount = float(getattr(order.parameters, "discount", 1.0))
        shaping = spec.shaping
        environment = Shaped(environment, discount, potential=shaping.potential, bonus=shaping.coordination_bonus)
    return shielded(environment, spec.safety, Trail(order.job), exploring=True)


def levels(environment: VectorEnvironment, order: Order) -> Curriculum | None:
    """The curriculum the order asks for, at its beginning."""
    if order.spec.curriculum is None:
        return None
    world = innermost(environment)
    return Curriculum(getattr(world, "LEVELS", ()), getattr(world, "level", 0), order.spec.curriculum)


def milestones(order: Order) -> Milestones | None:
    """Where sample efficiency is to be measured: what keeps the weights along training."""
    suite, algorithm = order.spec.evaluation.suite, order.spec.algorithm
    if suite is None or "sample-efficiency" not in suite.dimensions:
        return None
    return Milestones(order.spec.total_steps, traits_of(algorithm).perceptrons)


def begin(order: Order, group: Group, device: torch.device, store: Store | None = None) -> Training:
    """A training at step 0; raises ConfigError when algorithm and environment do not fit."""
    spec = order.spec
    members = group.place.share(order.parameters.environments)
    policy = policy_in_force(order, store)
    environment = training_world(order, members, policy)
    _require_fitting_actions(order, environment)
    behaviour_of(order, environment.bounds)  # what cannot be exported is not trained

    read = ReadExperience()

    def recording() -> Recording:
        return recorded(order, group, store, environment, read, policy)

    def memory() -> Recording | None:
        return remembered(order, group, store, environment, read, policy)

    occasion = Occasion(spec.seed, spec.total_steps, order.parameters.environments, group, recording, memory)
    algorithm = learner(order.parameters, environment, occasion, device)
    advise(environment, algorithm, traits_of(spec.algorithm), spec.seed)
    begun = begin_from(order, algorithm, store) if store is not None else ""
    curriculum, kept = levels(environment, order), milestones(order)
    episodes = no_episodes(len(members))
    return Training(algorithm, environment, environment.reset(), episodes, curriculum, kept, begun, read)


def resume(training: Training, order: Order, group: Group, store: Store) -> Training:
    """Collective: take up the newest durable checkpoint, if there is one of this specification."""
    body = group.broadcast(newest(store) if group.place.rank == 0 else None)
    if not body:
        return training
    try:
        note = restore(training, order, group, body)
    except (ValueError, KeyError) as error:
        say(f"the checkpoint cannot be used, starting anew: {error}")
        return begin(order, group, training.learner.network.vector.device, store)
    say(note)
    return training


def newest(store: Store) -> bytes | None:
    """The newest checkpoint that is whole; raises StoreRefused when there are some and all of them are damaged."""
    try:
        saved = store.checkpoint()
    except StoreRefused as damage:
        say(f"{damage}; going back to the one before")
        saved = store.checkpoint(back=1)
        if saved is None:
            raise
    return saved.body if saved else None


class Session:
    """The training loop with its checkpoints."""

    def __init__(
        self, order: Order, group: Group, store: Store, reporter: Reporter, saver: Saver, stopper: Stopper
    ) -> None:
        """Nothing happens before `run`."""
        self._order, self._group, self._store = order, group, store
        self._reporter, self._saver, self._stopper = reporter, saver, stopper
        self._begun = self._saved_at = time.monotonic()
        self._saves = 0
        self._pause, self._strain = 0.0, 1.0  # seconds the last checkpoint held training up, per processor second of it
        self._chief = group.place.rank == 0

    def run(self, device: torch.device) -> Training:
        """Train to `totalSteps`; returns when the final checkpoint is handed to the saver."""
        training = resume(begin(self._order, self._group, device, self._store), self._order, self._group, self._store)
        self._begun = self._saved_at = time.monotonic()
        self._stopper.graceful = True  # before anybody can read that this rank trains
        try:
            self._reporter.phase("training", f"{self._order.spec.algorithm} on {self._order.spec.data.environment}")
            while training.learner.step < self._order.spec.total_steps:
                self._iterate(training)
            self._save(training)
        finally:
            self._stopper.graceful = False
        return training

    def _iterate(self, training: Training) -> None:
        before = training.learner.step
        training.observation, experiences = training.learner.iterate(training.observation)
        if training.milestones is not None:
            training.milestones.note(before, training.learner.step, training.learner.network)
        for experience in experiences:
            training.episodes.note(experience.reward, experience.ended)
        if training.read.note is not None:
            self._reporter.caution(training.read.note.message)
        losses = {name: value for experience in experiences for name, value in experience.losses.items()}
        self._reporter.progress(training.learner.step, training.episodes.recent, losses, training.episodes.trail)
        if training.curriculum is not None:
            self._climb(training, training.curriculum)
        if time.monotonic() - self._begun > SETTLED_SECONDS or self._saves >= SETTLED_SAVES:
            settled()
        leaving, due = self._group.sum([float(self._stopper.requested), float(self._due())])
        if due or leaving:
            self._save(training)
        if leaving:
            self._leave()

    def _climb(self, training: Training, curriculum: Curriculum) -> None:
        """Collective: the same level on all ranks, from what ended on all of them."""
        counted = training.environment
        while isinstance(counted, Wrapper) and not isinstance(counted, Counted):
            counted = counted.inner
        assert isinstance(counted, Counted)  # training_world has put it there
        episodes, successes, total = self._group.sum([float(count) for count in counted.take()])
        moved = curriculum.note(int(episodes), int(successes), total)
        if moved:
            innermost(training.environment).level = curriculum.level
            training.episodes.trail.clear()
            word = "up" if moved > 0 else "back"
            why = f"{word} to level {curriculum.name} at step {training.learner.step}: {curriculum.evidence}"
            self._reporter.phase("training", why)

    def _due(self) -> bool:
        """Only rank 0 decides, so all ranks agree; never while the last checkpoint is still under way.

        A large state is saved less often than asked for, so that saving never takes more than MOST_OF_TIME. Where
        processors are short, what the saver's thread needs of them costs training that much more.
        """
        cost = self._pause + self._saver.cost * self._strain
        wanted = max(self._order.spec.checkpoint.every_seconds, cost / MOST_OF_TIME)
        return self._chief and time.monotonic() - self._saved_at >= wanted and self._saver.idle

    def _save(self, training: Training) -> None:
        began, processor = time.monotonic(), time.thread_time()
        body = save(training, self._order, self._group)
        self._saved_at, self._saves = time.monotonic(), self._saves + 1
        self._pause = self._saved_at - began
        self._strain = max(1.0, self._pause / max(1e-6, time.thread_time() - processor))
        if body is not None:
            self._saver.offer(body, training.learner.step)

    def _leave(self) -> None:
        """Some rank got SIGTERM and the checkpoint is taken: when it is durable that rank leaves, its group with it.

        Collective: the successor of a rank that left earlier would find rank 0 still saving and end its generation.
        """
        flushed = self._chief and self._saver.flush(FLUSH_SECONDS)
        (durable,) = self._group.sum([float(flushed)])
        if self._stopper.requested:
            raise Terminated("SIGTERM: checkpoint saved" if durable else "SIGTERM: no time to save a checkpoint")
        raise PeerLost("another rank was told to stop")
