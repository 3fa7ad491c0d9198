"""Logged experience as arrays to learn from: an agent's trajectories in the store, or a recorded file.

A recorded file holds one wire.Trajectory as JSON on each line.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import MOST_NAMED, EpisodeSelection, ExperienceRead, LoggedEpisode, Step, Trajectory
from learnloop_environments import VectorEnvironment, spaces, wrappers
from learnloop_environments.errors import ConfigError
from learnloop_trainer import baseline_policy, distributed, errors, progress_reporter, training_order
from learnloop_trainer.recordings import ReadExperience, Recording
from learnloop_trainer.store.run_store import Store, digest, logged, pack, unpack
from learnloop_trainer.training_run.reward_rules import (
    StepRewards,
    credited,
    require_measured,
    step_rewards,
    unmeasured,
)

Document = TypeVar("Document", bound=BaseModel)
ENVIRONMENT = step_rewards(None, played=False)
MEMORY_SECONDS = 30.0
"""How long a run that can do without logged experience waits for the store to answer."""


def read_file(kind: type[Document], uri: str, store: Store) -> list[Document]:
    """Trajectories or preferences in a recorded file; raises ConfigError naming the line that is none."""
    field, one = "spec.hyperparameters.recording", kind.__name__.lower()
    fix = f"point it to a file with one {one} as JSON on each line"
    documents: list[Document] = []
    for number, line in enumerate(baseline_policy.fetch(uri, store, field, fix).splitlines(), 1):
        try:
            documents.append(kind.model_validate_json(line))
        except ValidationError as error:
            problem = f"line {number} is not a {one} ({error.errors()[0]['msg']})"
            raise ConfigError(field, uri, problem, fix) from None
    return documents


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
        own, agent = None, self.order.spec.data.learning_agent_ref
        if self.group.place.rank == 0 and self.store is not None and agent is not None:
            try:
                own, self.read.note = self._memory(self.store, agent.name)
            except errors.StoreUnavailable as error:
                why = f"no logged experience, the run learns from its own steps alone: {error}"
                progress_reporter.say(why)
                selection = chosen(self.order, datetime.now(UTC))
                self.read.note = note_of((), self.store, 0, agent.name, selection, message=why)
        return share(own, self.group)

    def _memory(self, store: Store, agent: str) -> tuple[Recording | None, ExperienceRead]:
        order, policy = self.order, self.policy
        limit, selection = order.parameters.max_recorded_steps, chosen(order, datetime.now(UTC))
        episodes = store.episodes(agent, selection, limit, MEMORY_SECONDS)
        rewards = step_rewards(policy, played=True, success_return=order.spec.data.success_return)
        nothing, lacking = unmeasured(order, policy, episodes)
        # Zeros among rewarded steps would teach that these were poor.
        recording = fitting([] if nothing else episodes, self.environment, limit, rewards)
        lacking = f"the log is left out: {lacking}" if nothing else lacking
        note = _read(episodes, recording, store, agent, selection, credited(episodes, policy), lacking)
        if recording is not None:
            mixed = f"{note.steps} that {agent} logged in {note.episodes} episodes"
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


def logged_episodes(
    order: training_order.Order, store: Store, limit: int
) -> tuple[list[LoggedEpisode], str | None, EpisodeSelection | None]:
    """Episodes of the file or else of the agent that the order names, the agent, and what selects them.

    Raises ConfigError when the order names neither.
    """
    agent = order.spec.data.learning_agent_ref
    if order.parameters.recording:
        return [logged(one) for one in read_file(Trajectory, order.parameters.recording, store)], None, None
    if agent is None:
        problem = f"is missing: {order.spec.algorithm} learns from what an agent has logged"
        raise ConfigError("spec.data.learningAgentRef", "", problem, "set it, or spec.hyperparameters.recording")
    selection = chosen(order, datetime.now(UTC))
    return store.episodes(agent.name, selection, limit), agent.name, selection


def load(
    order: training_order.Order, store: Store, environment: VectorEnvironment, policy: RewardPolicySpec | None = None
) -> tuple[Recording | None, ExperienceRead, Recording | None]:
    """The steps to learn from, a note of them, and without an environment the whole episodes that prove the run.

    Raises ConfigError when the order names neither file nor agent. `policy` rewards the steps; None: the environment's
    own rewards.
    """
    limit = order.parameters.max_recorded_steps
    episodes, agent, selection = logged_episodes(order, store, limit)
    rewards = step_rewards(policy, played=False, success_return=order.spec.data.success_return)
    proof = None
    learned = episodes
    if order.spec.data.environment is None:
        learned, proving = parted(episodes, order.logged_share)
        proof = fitting((one for one in proving if whole(one, environment)), environment, limit, rewards)
    recording = fitting(learned, environment, limit, rewards)
    lacking = "" if order.spec.algorithm == "bc" else require_measured(order, policy, episodes)
    return recording, _read(episodes, recording, store, agent, selection, credited(episodes, policy), lacking), proof


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


def chosen(order: training_order.Order, now: datetime) -> EpisodeSelection:
    """The order's filter as the store reads it; an age is counted back from `now`. Raises ConfigError."""
    wanted, by = order.spec.data.filter, order.reward_policy
    fields = wanted.model_dump(exclude_none=True) if wanted is not None else {}
    if order.spec.data.rewards == "policy" and by is not None:
        fields |= {"reward_policy": by.name, "reward_policy_revision": by.revision}
    age = fields.pop("max_age_seconds", None)
    if age is not None:
        fields["since"] = now - timedelta(seconds=age)
    try:
        selection = EpisodeSelection.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = to_camel(str(first["loc"][0])) if first["loc"] else ""
        raise ConfigError(
            f"spec.data.filter.{field}", first["input"], f"is refused: {first['msg']}", "correct it"
        ) from None
    since, until = selection.since, selection.until
    if since is not None and until is not None and until <= since:
        problem = f"is not after {since.isoformat()}, from which on episodes are asked for: it selects none"
        fix = "set until to a later time, or correct since or maxAgeSeconds"
        raise ConfigError("spec.data.filter.until", until.isoformat(), problem, fix)
    return selection


def _read(
    episodes: list[LoggedEpisode],
    recording: Recording | None,
    store: Store,
    agent: str | None,
    selection: EpisodeSelection | None,
    shared: int,
    lacking: str,
) -> ExperienceRead:
    """The note of these episodes; `lacking`: what rewards them and is not in them."""
    why = (lacking or _amiss(episodes, recording, agent, selection))[:1024]
    if why:
        progress_reporter.say(why)
    steps = 0 if recording is None else len(recording.reward)
    return note_of(episodes, store, steps, agent, selection, shared, why)


def note_of(
    episodes: Sequence[LoggedEpisode],
    store: Store,
    steps: int,
    agent: str | None = None,
    selection: EpisodeSelection | None = None,
    shared: int = 0,
    message: str = "",
) -> ExperienceRead:
    """A note of the episodes, `shared` of them with other agents; the list of all ids is durable on return."""
    ids = [episode.trajectory_id for episode in episodes]
    return listed(ids, store, steps, {episode.policy_revision for episode in episodes}).model_copy(
        update={"agent": agent, "selection": selection, "credited": shared, "message": message[:1024]}
    )


def listed(ids: Sequence[str], store: Store, steps: int, revisions: Iterable[str] = ()) -> ExperienceRead:
    """A note of what has these ids; their list is durable on return."""
    body = "".join(f"{one}\n" for one in ids).encode()
    return ExperienceRead(
        read_at=datetime.now(UTC),
        episodes=len(ids),
        steps=steps,
        model_revisions=sorted(revisions)[:MOST_NAMED],
        trajectory_ids=list(ids[:MOST_NAMED]),
        ids_uri=store.put_artifact(body) if ids else None,
        ids_sha256=digest(body) if ids else None,
    )


def _amiss(
    episodes: list[LoggedEpisode], recording: Recording | None, agent: str | None, selection: EpisodeSelection | None
) -> str:
    """Why there is nothing to learn from; empty where there is something."""
    if recording is not None:
        return ""
    whose = f"the log of {agent}" if agent else "the recorded file"
    if episodes:
        return f"no step of the {len(episodes)} episodes in {whose} has the environment's observations and actions"
    fields = selection.model_dump(mode="json", exclude_defaults=True, by_alias=True) if selection else {}
    chosen = {to_camel(name): value for name, value in fields.items() if not name.startswith("reward_policy")}
    filtered = f" that spec.data.filter selects: {json.dumps(chosen)[:512]}" if chosen else ""
    return f"no episode in {whose}{filtered}"
