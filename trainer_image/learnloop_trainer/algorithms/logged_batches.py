"""Batches of transitions from a log: all that some learners have, and what others mix their own with."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import errors, randomness
from learnloop_environments.spaces import Observations, VectorEnvironment, agents, team_return
from learnloop_trainer import distributed, floating_point, recordings, replay
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion, StatefulLearner
from learnloop_trainer.neural.networks import Network, forward_numpy
from learnloop_trainer.neural.schedules import explored, held


class LoggedTransitions:
    """The recording of a run, fetched once, then part of its checkpoints: what arrives later changes no run.

    A batch is drawn from the whole recording; each rank has its part of it, so that sums over all ranks are those of
    one rank.
    """

    def __init__(
        self, occasion: Occasion, batch_size: int, purpose: randomness.Purpose = randomness.Purpose.REPLAY
    ) -> None:
        """Empty until `take` or `restore`."""
        self._occasion, self._size = occasion, batch_size
        self._draws = randomness.Draws((batch_size,), purpose, occasion.seed)
        self.recording: recordings.Recording | None = None

    def take(self, recording: recordings.Recording, device: torch.device) -> None:
        """Learn from this recording; raises ConfigError when no step of it says what followed."""
        following = recordings.successors(recording)
        if not len(following.rows):
            fix = "record longer episodes, or whether they terminated"
            raise errors.ConfigError("spec.data", "(recording)", "has no step whose successor is known", fix)

        def moved(array: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        self.recording = recording
        observation, action, reward = (
            moved(array[following.rows]) for array in (recording.observation, recording.action, recording.reward)
        )
        successor, self._alive = moved(following.observation), moved(following.alive)
        self._whole = replay.Transitions(observation, successor, action, reward, self._alive)

    def batch(self, number: int) -> replay.Transitions:
        """This rank's part of the batch for update `number`."""
        share = self._occasion.group.place.share(self._size)
        draws = self._draws.at(number)[share.start : share.stop]
        index = torch.from_numpy((draws * len(self._alive)).astype(np.int64)).to(self._alive.device)
        return replay.Transitions(
            *(getattr(self._whole, item.name).index_select(0, index) for item in fields(replay.Transitions))
        )

    def state(self) -> Arrays:
        return {} if self.recording is None else self.recording.arrays()

    def restore(self, state: Arrays, device: torch.device) -> None:
        """Take up what `state` gave, if there was anything."""
        recording = recordings.Recording.of(state)
        if recording is not None:
            self.take(recording, device)


class RecordingLearner(StatefulLearner, ABC):
    """A learner of a recording alone, which becomes part of its checkpoints; the environment is not played."""

    UPDATES: ClassVar[int]
    """Per call of `iterate`."""
    recording: recordings.Recording | None = None

    @abstractmethod
    def _take(self, recording: recordings.Recording) -> None:
        """Get ready to learn from the recording; raises ConfigError where nothing can be learned from it."""

    @abstractmethod
    def _update(self) -> int:
        """Collective: one update of every network; returns how many recorded steps it learned from."""

    def _begin(self, recording: recordings.Recording) -> None:
        self._take(recording)
        self.recording = recording

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        if self.recording is None:
            self._begin(self.occasion.recording())
        assert self.recording is not None
        for _ in range(self.UPDATES):
            self.step += self._update()
        total = sum((other.vector.sum() for other in self.others.values()), self.network.vector.sum())
        floating_point.require_learned(self.step, total, self.recording.observation, self.recording.reward)
        return observation, []

    def shared(self) -> Arrays:
        return super().shared() | ({} if self.recording is None else self.recording.arrays())

    def restore(self, shared: Arrays, own: Arrays) -> None:
        super().restore(shared, own)
        recording = recordings.Recording.of(shared)
        if recording is not None:
            self._begin(recording)


class LogLearner(RecordingLearner):
    """A learner whose every update is a batch of a log; this rank has its part of each."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        network: Network,
        others: Mapping[str, Network],
        judged: str,
    ) -> None:
        """`judged`: the name of the network that a target follows; the exported one's is ''."""
        self._judged = network if not judged else others[judged]
        super().__init__(parameters, environment, occasion, network, others=others, targets=[judged])
        self.target = self.targets[judged]
        self._log = LoggedTransitions(occasion, parameters.batch_size)

    def _take(self, recording: recordings.Recording) -> None:
        self._log.take(recording, self.network.vector.device)

    def _update(self) -> int:
        with torch.inference_mode():
            self._learn(self._log.batch(self._judged.updates))
            self.target.lerp_(self._judged.vector, self.parameters.target_rate)
        return int(self.parameters.batch_size)

    @abstractmethod
    def _learn(self, batch: replay.Transitions) -> None:
        """Collective: one update of every network."""

    @property
    def held(self) -> bool:
        return held(self.step / self.occasion.total_steps, warm=self.network.warm)

    def _apply(self, network: Network) -> None:
        self.apply(network, clear=False)  # the next gradient replaces this one


class MixedReplay:
    """Logged transitions mixed with a learner's own: `local` of its own and `logged` of these make a batch.

    Where the log has none, or cannot be read, a batch is `alone` of the learner's own.
    """

    def __init__(self, occasion: Occasion, parameters: Parameters, alone: int) -> None:
        self._occasion, self._alone, self._parameters = occasion, alone, parameters
        size = max(1, parameters.memory_batch_size)
        self._log = LoggedTransitions(occasion, size, randomness.Purpose.MEMORY)
        self.loaded = False

    @property
    def there(self) -> bool:
        return self._log.recording is not None

    @property
    def local(self) -> int:
        """Transitions of the learner's own in a batch, of all ranks together."""
        return self._parameters.local_batch_size if self.there else self._alone

    @property
    def logged(self) -> int:
        return self._parameters.memory_batch_size if self.there else 0

    def ask(self, device: torch.device) -> None:
        """Collective at the first call: take what the log has, if anything."""
        if self.loaded:
            return
        self.loaded = True
        recording = self._occasion.memory() if self._parameters.memory_batch_size else None
        if recording is not None and len(recordings.successors(recording).rows):
            self._log.take(recording, device)

    def joined(self, own: replay.Transitions, number: int) -> replay.Transitions:
        """The learner's own transitions, then this rank's part of the logged ones for update `number`."""
        if not self.there:
            return own
        logged = self._log.batch(number)
        pairs = ((getattr(own, item.name), getattr(logged, item.name)) for item in fields(replay.Transitions))
        return replay.Transitions(*(torch.cat(pair) for pair in pairs))

    def share(self) -> range:
        """This rank's part of the logged transitions of a batch."""
        return self._occasion.group.place.share(self.logged)

    def state(self) -> Arrays:
        return {"memory.loaded": np.asarray([self.loaded])} | self._log.state()

    def restore(self, state: Arrays, device: torch.device) -> None:
        """Take up what `state` gave: what was read, or that there was nothing."""
        self.loaded = bool(state["memory.loaded"][0])
        self._log.restore(state, device)


def mean_losses(group: distributed.Group, own: float, logged: float, memory: MixedReplay) -> dict[str, float]:
    """Collective: the mean loss of a batch, of its local part and of its logged one, from this rank's sums."""
    local_sum, logged_sum = group.sum([own, logged])
    means = {"total": (local_sum + logged_sum) / (memory.local + memory.logged), "local": local_sum / memory.local}
    return means | ({"memory": logged_sum / memory.logged} if memory.there else {})


CHUNK = 32  # vector steps per call of `iterate`
Indices = NDArray[np.int64]


class ReplayLearner(StatefulLearner):
    """A learner with a replay buffer: one ring for each environment."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        network: Network,
        *,
        others: Mapping[str, Network] | None = None,
        targets: Collection[str] = ("",),
        width: int | None = None,
        dimensions: int = 0,
        rewards: int = 1,
    ) -> None:
        """`width`: numbers in a stored observation, the environment's unless given; for the rest see Replay."""
        super().__init__(parameters, environment, occasion, network, others=others, targets=targets)
        self.length = max(1, parameters.buffer_size // occasion.environments)
        self.replay = replay.Replay(
            environment.members,
            self.length,
            width or environment.observations,
            dimensions=dimensions,
            rewards=rewards,
            environments=occasion.environments,
        )

    def updates_due(self) -> int:
        """How many updates follow the vector step that ends now."""
        return self._due(self.step + self.occasion.environments) - self._due(self.step)

    def _due(self, step: int) -> int:
        return max(0, step - self.parameters.learning_starts) // self.parameters.steps_per_update

    def places(self, draws: NDArray[np.float64]) -> tuple[Indices, Indices]:
        """Environments and slots of a batch, for uniform draws [2, batch]."""
        members = (draws[0] * self.occasion.environments).astype(np.int64)
        return members, (draws[1] * self.replay.filled).astype(np.int64)

    def follow(self) -> None:
        """Copy the network to its target where the time has come."""
        if self.network.updates % self.parameters.target_update == 0:
            self.targets[""].copy_(self.network.vector)

    def shared(self) -> Arrays:
        ring = np.asarray([self.replay.position, self.replay.filled], dtype=np.int64)
        return super().shared() | {"ring": ring}

    def own(self) -> Arrays:
        return self.replay.state()

    def restore(self, shared: Arrays, own: Arrays) -> None:
        super().restore(shared, own)
        position, filled = (int(value) for value in shared["ring"])
        self.replay.restore(own, position, filled)


class Team(ReplayLearner, ABC):
    """A team learner; a subclass says how to choose actions and how to learn from a batch of joint transitions."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        network: Network,
        *,
        others: Mapping[str, Network] | None = None,
    ) -> None:
        self.agents = agents(environment)
        numbers = environment.actions if environment.bounds is not None else 1
        super().__init__(
            parameters,
            environment,
            occasion,
            network,
            others=others,
            targets=("", *(others or {})),
            width=self.agents * environment.observations,
            dimensions=self.agents * numbers,
            rewards=self.agents,
        )
        self._draws = randomness.Draws((2, parameters.batch_size), randomness.Purpose.REPLAY, occasion.seed)

    @abstractmethod
    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.generic]:
        """Actions [n, agents] or, scaled to [-1, 1], [n, agents, dimensions]; `vector_step` numbers the occasion."""

    @abstractmethod
    def learn(self, batch: replay.Transitions, count: int) -> None:
        """One update; `batch` is this rank's part of `count` joint transitions, agents one after another in a row."""

    @property
    def updates(self) -> int:
        return self.network.updates

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """CHUNK vector steps with the updates that are due between them."""
        environment, bounds = self.environment, self.environment.bounds
        rewards = np.empty((CHUNK, len(environment.members)), dtype=np.float32)
        ended = np.empty(rewards.shape, dtype=np.bool_)
        for t in range(CHUNK):
            action = self.choose(observation, self.step // self.occasion.environments)
            played = action if bounds is None else bounds.scale(np.asarray(action, dtype=np.float32))
            step = environment.step(played)
            self.replay.add(observation, action, step)
            rewards[t], ended[t] = team_return(step.reward), step.terminated | step.truncated
            observation = step.observation
            for _ in range(self.updates_due()):
                batch = self.replay.pick(*self.places(self._draws.at(self.updates)), self.network.vector.device)
                self.learn(batch, self.parameters.batch_size)
            self.step += self.occasion.environments
        floating_point.require_finite(self.step, observation=observation, reward=rewards)
        for network in (self.network, *self.others.values()):
            floating_point.require_learned(self.step, network.vector.sum(), *self.replay.learned_from())
        return observation, [Experience(rewards, ended)]

    def by_agent(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [n, agents * width] as [n, agents, width]."""
        return rows.view(len(rows), self.agents, -1)


class DiscreteTeam(Team):
    """A team whose agents act by one Q-network `q` that they share: the best action, or now and then any."""

    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.int64]:
        parameters = self.parameters
        done = self.step / max(1.0, parameters.exploration_fraction * self.occasion.total_steps)
        rate = explored(parameters.epsilon_start, parameters.epsilon_end, done, warm=self.network.warm)
        explore, random = randomness.uniforms(
            randomness.Purpose.EXPLORE,
            self.occasion.seed,
            vector_step,
            np.arange(2)[:, None, None],
            np.asarray(self.environment.members)[None, :, None],
            np.arange(self.agents)[None, None, :],
        )
        rows = np.ascontiguousarray(observation.reshape(-1, observation.shape[-1]))
        values = forward_numpy(self.network.actor(), "q", "relu", rows).reshape(*observation.shape[:2], -1)
        chosen = np.where(explore < rate, (random * values.shape[2]).astype(np.int64), values.argmax(axis=2))
        return np.asarray(chosen, dtype=np.int64)
