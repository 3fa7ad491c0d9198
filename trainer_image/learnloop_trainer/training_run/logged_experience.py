"""Logged experience as arrays to learn from: agents' trajectories in the store, or a recorded file."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import ExperienceRead, LoggedEpisode, Step
from learnloop_environments import VectorEnvironment, spaces, wrappers
from learnloop_environments.errors import ConfigError
from learnloop_trainer import distributed, errors, progress_reporter, training_order
from learnloop_trainer.recordings import ReadExperience, Recording
from learnloop_trainer.store.run_store import Store, pack, unpack
from learnloop_trainer.training_run.agent_logs import Log, agents_of, chosen, in_turn, note_of, nothing_of, read_log
from learnloop_trainer.training_run.reward_rules import (
    StepRewards,
    credited,
    require_measured,
    step_rewards,
    unmeasured,
)

ENVIRONMENT = step_rewards(None, played=False)
MEMORY_SECONDS = 30.0
"""How long a run that can do without logged experience waits for the store to answer."""


class _FittingSteps:
    """Steps that fit, one episode after another."""

    def __init__(self, environment: VectorEnvironment) -> None:
        self._environment = environment
        self.steps: list[Step] = []
        self.rewards: list[float] = []
        self.last: list[bool] = []
        self.beyond: list[object] = []
        self.beyond_recorded: list[bool] = []
        self.cut_short = 0

    def add(self, step: Step, worth: float) -> None:
        self.steps.append(step)
        self.rewards.append(worth)
        self.last.append(False)

    def close(self, observation: object) -> None:
        """The newest step is the last one of its episode, or of what fits of it; `observation` came after it."""
        if not self.last or self.last[-1]:
            return
        self.last[-1] = True
        valid = _is_observation(observation, self._environment)
        self.beyond_recorded.append(valid)
        self.beyond.append(observation if valid else self.steps[-1].observation)
        self.cut_short += not (valid or self.steps[-1].terminated)


def fitting(
    episodes: Iterable[LoggedEpisode],
    environment: VectorEnvironment,
    limit: int,
    rewards: StepRewards = ENVIRONMENT,
) -> Recording | None:
    """At most `limit` steps whose observation and action fit the environment; None when there are none.

    `rewards`: what each step of an episode is worth.
    """
    record, left_out = _FittingSteps(environment), 0
    for episode in episodes:
        if len(record.steps) >= limit:
            break
        for number, (step, worth) in enumerate(zip(episode.steps, rewards(episode), strict=True), 1):
            if len(record.steps) >= limit:
                record.close(step.observation)
                break
            if not _fits(step, environment):
                left_out += 1
                record.close(step.observation)
                continue
            record.add(step, worth)
            if (step.terminated or step.truncated) and number < len(episode.steps):
                record.close(None)  # what follows is another episode, recorded as one with this
        record.close(episode.last_observation)
    if left_out:
        progress_reporter.say(
            f"{left_out} recorded steps do not fit the environment's observations and actions and are left out"
        )
    if record.cut_short:
        progress_reporter.say(f"{record.cut_short} recorded episodes do not say what was seen after their last step")
    if not record.steps:
        return None
    steps = record.steps
    rest = (
        np.asarray(record.rewards, dtype=np.float32),
        np.asarray([_log_prob(step, environment) for step in steps], dtype=np.float32),
        np.asarray(record.last, dtype=np.bool_),
        np.asarray([step.terminated for step in steps], dtype=np.bool_),
        np.asarray(record.beyond, dtype=np.float32),
        np.asarray(record.beyond_recorded, dtype=np.bool_),
    )
    observation = np.asarray([step.observation for step in steps], dtype=np.float32)
    taken = [step.action for step in steps]
    if environment.bounds is None:
        return Recording(observation, np.asarray(taken, dtype=np.int64), *rest)
    space = spaces.ActionSpace.of(environment)
    return Recording(observation, space.normalise(space.project(np.asarray(taken, dtype=np.float32))), *rest)


def _log_prob(step: Step, environment: VectorEnvironment) -> float:
    """NaN where it is unknown: not recorded, above 0 for a choice, or a server's 0 for numbers that it did not draw."""
    log_prob = step.log_prob
    if log_prob is None:
        return np.nan
    if environment.bounds is None:
        return log_prob if log_prob <= 0 else np.nan
    return log_prob if step.exploration or log_prob != 0 else np.nan


def _fits(step: Step, environment: VectorEnvironment) -> bool:
    taken = step.action
    if not _is_observation(step.observation, environment):
        return False
    if environment.bounds is None:
        return isinstance(taken, int) and bool(spaces.ActionSpace.of(environment).validate(np.asarray([taken]))[0])
    return isinstance(taken, list) and len(taken) == environment.actions and bool(np.isfinite(taken).all())


def _is_observation(value: object, environment: VectorEnvironment) -> bool:
    if not isinstance(value, list) or len(value) != environment.observations:
        return False
    return bool(np.isfinite(np.asarray(value, dtype=np.float32)).all())


def share(recording: Recording | None, group: distributed.Group) -> Recording | None:
    """Collective: rank 0's recording on all ranks."""
    body = None
    if group.place.rank == 0 and recording is not None:
        body = pack(recording.arrays(), {})
    received = group.broadcast(body)
    if not received:
        return None
    return Recording.of(unpack(received)[0])


@dataclass(frozen=True, slots=True)
class RunLog:
    """Logged experience of one run. On rank 0 `read` says afterwards which episodes it was, or why there are none."""

    order: training_order.Order
    group: distributed.Group
    store: Store | None
    environment: VectorEnvironment
    policy: RewardPolicySpec | None = None
    read: ReadExperience = field(default_factory=ReadExperience)

    def recorded(self) -> Recording:
        """Collective: what a run learns from; raises ConfigError when that is nothing."""
        own, read = None, self.read
        if self.group.place.rank == 0 and self.store is not None:
            own, read.note, read.proof = load(self.order, self.store, self.environment, self.policy)
        recording = share(own, self.group)
        if recording is None:
            fix = "record experience of this environment first, or correct the name, the filter or the agent"
            why = f" ({read.note.message})" if read.note is not None and read.note.message else ""
            raise ConfigError("spec.data", self.order.spec.data.world, f"has no recorded steps that fit{why}", fix)
        return recording

    def remembered(self) -> Recording | None:
        """Collective: what a run mixes with its own steps; None where there is none, or it cannot be read."""
        own, agents = None, agents_of(self.order)
        if self.group.place.rank == 0 and self.store is not None and agents:
            try:
                own, self.read.note = self._memory(self.store)
            except errors.StoreUnavailable as error:
                why = f"no logged experience, the run learns from its own steps alone: {error}"
                progress_reporter.say(why)
                nothing = Log({agent: [] for agent in agents}, chosen(self.order))
                self.read.note = note_of(nothing, self.store, 0, message=why)
        return share(own, self.group)

    def _memory(self, store: Store) -> tuple[Recording | None, ExperienceRead]:
        order, policy = self.order, self.policy
        limit = order.parameters.max_recorded_steps
        log = read_log(order, store, limit, MEMORY_SECONDS)
        _require_each(log, self.environment)
        episodes = log.episodes
        rewards = step_rewards(policy, played=True, success_return=order.spec.data.success_return)
        nothing, lacking = unmeasured(order, policy, episodes)
        # Zeros among rewarded steps would teach that these were poor.
        recording = fitting([] if nothing else episodes, self.environment, limit, rewards)
        lacking = f"the log is left out: {lacking}" if nothing else lacking
        note = _read(log, recording, store, credited(episodes, policy), lacking)
        if recording is not None:
            mixed = f"{note.steps} that {log.whose} logged in {note.episodes} episodes"
            progress_reporter.say(f"mixes its own steps with {mixed}")
            recording = _shaped(order, recording, self.environment)
        return recording, note


def _shaped(order: training_order.Order, recording: Recording, environment: VectorEnvironment) -> Recording:
    """With the potential-based rewards of spec.shaping, which the run's own steps have too."""
    if order.spec.shaping is None or not order.spec.shaping.potential:
        return recording
    potential, discount = wrappers.innermost(environment).potential, float(getattr(order.parameters, "discount", 1.0))
    after = np.roll(recording.observation, -1, axis=0)
    after[recording.last] = recording.endings()
    terms = discount * potential(after) * ~recording.terminated - potential(recording.observation)
    return replace(recording, reward=(recording.reward + terms).astype(np.float32))


def load(
    order: training_order.Order, store: Store, environment: VectorEnvironment, policy: RewardPolicySpec | None = None
) -> tuple[Recording | None, ExperienceRead, Recording | None]:
    """The steps to learn from, a note of them, and without an environment the whole episodes that prove the run.

    Raises ConfigError when the order names neither file nor agent. `policy` rewards the steps; None: the environment's
    own rewards.
    """
    limit = order.parameters.max_recorded_steps
    log = read_log(order, store, limit)
    _require_each(log, environment)
    episodes = log.episodes
    rewards = step_rewards(policy, played=False, success_return=order.spec.data.success_return)
    proof = None
    learned = episodes
    if order.spec.data.environment is None:
        own, *others = log.by_agent.values()
        trained, proving = parted(own, order.logged_share)  # others' returns would be a false baseline
        learned = in_turn([trained, *others])
        proof = fitting((one for one in proving if whole(one, environment)), environment, limit, rewards)
    recording = fitting(learned, environment, limit, rewards)
    lacking = "" if order.spec.algorithm == "bc" else require_measured(order, policy, episodes)
    return recording, _read(log, recording, store, credited(episodes, policy), lacking), proof


def _require_each(log: Log, environment: VectorEnvironment) -> None:
    what = f"{environment.observations} numbers as its observation, and an action as here"
    log.require_each(lambda one: any(_fits(step, environment) for step in one.steps), what)


def parted(episodes: Iterable[LoggedEpisode], share: float) -> tuple[list[LoggedEpisode], list[LoggedEpisode]]:
    """Episodes to learn from, and the `share` of them that proves.

    Each one's own id decides, so that one that proves does so in every run: a policy that a run begins from has not
    learned from it either.
    """
    learned: list[LoggedEpisode] = []
    proving: list[LoggedEpisode] = []
    for one in episodes:
        drawn = int.from_bytes(hashlib.sha256(f"proves {one.trajectory_id}".encode()).digest()[:8]) / 2**64
        (proving if drawn < share else learned).append(one)
    return learned, proving


def whole(episode: LoggedEpisode, environment: VectorEnvironment) -> bool:
    """Whether it was seen from its beginning to its end, and every step of it fits."""
    over = any(step.terminated or step.truncated for step in episode.steps[:-1])
    return episode.status == "completed" and not over and all(_fits(step, environment) for step in episode.steps)


def _read(log: Log, recording: Recording | None, store: Store, shared: int, lacking: str) -> ExperienceRead:
    """The note of this log; `lacking`: what rewards its episodes and is not in them."""
    why = (lacking or (nothing_of(log) if recording is None else ""))[:1024]
    if why:
        progress_reporter.say(why)
    steps = 0 if recording is None else len(recording.reward)
    return note_of(log, store, steps, shared, why)
