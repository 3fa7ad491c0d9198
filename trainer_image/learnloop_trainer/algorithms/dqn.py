"""Deep Q-learning with double targets.

Mnih et al. (2015), doi 10.1038/nature14236, algorithm 1; target of van Hasselt, Guez & Silver (2016), arXiv 1509.06461,
equation 4:

    y = r + gamma (1 - terminated) Q_target(s', argmax_a Q(s', a)),    L = E[ (Q(s, a) - y)^2 ]

Deviations, all deliberate:
- Many environments act at once; one update follows every `steps_per_update` environment steps of all ranks together.
- The learning rate falls linearly to zero, so that the last policy is not the victim of the last few updates.
- Adam instead of RMSProp, and the plain squared error with a clipped gradient norm. With the paper's clipped error the
  many transitions inside an episode outvote the few that end one, and Q-values diverge (measured on CartPole).
- Each environment owns a ring of the replay buffer. A batch is drawn from the rings of *all* ranks, each rank sums over
  the transitions it holds and the sums are added up: one rank and many ranks compute the same update, up to the
  order of floating-point additions.
- Truncation is not termination: s' is the real last observation and its value counts.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training_job import DqnParameters
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion
from learnloop_trainer.environments import VectorEnvironment
from learnloop_trainer.environments.base import Observations
from learnloop_trainer.networks import Floats, Network, dense, forward, forward_numpy
from learnloop_trainer.numerics import require_finite
from learnloop_trainer.randomness import Purpose, generator, uniforms
from learnloop_trainer.replay import Replay, Transitions

ACTIVATION = "relu"
CHUNK = 32  # vector steps per call of `iterate`


def init(parameters: DqnParameters, observations: int, actions: int, seed: int, device: torch.device) -> Network:
    """A fresh Q-network."""
    return Network(dense("q", [observations, *parameters.hidden, actions], 1.0, seed, 0), device)


def epsilon(parameters: DqnParameters, step: int, total_steps: int) -> float:
    """Exploration rate: falls linearly over the first `exploration_fraction` of the run, then stays."""
    done = min(1.0, step / max(1.0, parameters.exploration_fraction * total_steps))
    return parameters.epsilon_start + done * (parameters.epsilon_end - parameters.epsilon_start)


def act(
    q: Mapping[str, Floats], observation: Observations, explore: float, draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Epsilon-greedy actions [n]; draws [2, n] uniform: explore?, and if so which action."""
    values = forward_numpy(q, "q", ACTIVATION, observation)
    random = (draws[1] * values.shape[1]).astype(np.int64)
    return np.asarray(np.where(draws[0] < explore, random, values.argmax(axis=1)), dtype=np.int64)


def loss(
    leaves: Mapping[str, torch.Tensor], target: Mapping[str, torch.Tensor], batch: Transitions, discount: float
) -> torch.Tensor:
    """The sum of the squared errors over the transitions (not the mean: ranks add their sums up)."""
    with torch.no_grad():
        best = forward(leaves, "q", ACTIVATION, batch.successor).argmax(dim=1, keepdim=True)
        future = forward(target, "q", ACTIVATION, batch.successor).gather(1, best).squeeze(1)
        goal = batch.reward + discount * batch.alive * future
    value = forward(leaves, "q", ACTIVATION, batch.observation).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    return (value - goal).square().sum()


class Dqn:
    """DQN on this rank's environments."""

    def __init__(
        self,
        parameters: DqnParameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        device: torch.device,
    ) -> None:
        """A fresh learner at step 0 with an empty buffer."""
        self.parameters, self.occasion, self.environment = parameters, occasion, environment
        self.network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        self.target = self.network.vector.clone()
        self._target_views = self.network.views(self.target)
        length = max(1, parameters.buffer_size // occasion.environments)
        self.replay = Replay(environment.members, length, environment.observations)
        self.step = 0

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """See Learner.iterate: CHUNK vector steps with the updates that are due between them."""
        environment = self.environment
        draws = uniforms(
            Purpose.EXPLORE,
            self.occasion.seed,
            self.step // self.occasion.environments + np.arange(CHUNK)[:, None, None],
            np.arange(2)[None, :, None],
            np.asarray(environment.members)[None, None, :],
        )
        rewards = np.empty((CHUNK, len(environment.members)), dtype=np.float32)
        ended = np.empty(rewards.shape, dtype=np.bool_)
        for t in range(CHUNK):
            explore = epsilon(self.parameters, self.step, self.occasion.total_steps)
            action = act(self.network.actor(), observation, explore, draws[t])
            step = environment.step(action)
            self.replay.add(observation, action, step)
            rewards[t], ended[t] = step.reward, step.terminated | step.truncated
            observation = step.observation
            self._learn()
            self.step += self.occasion.environments
        require_finite(self.step, observation=observation, reward=rewards)
        require_finite(self.step, loss=self.network.vector.sum().cpu().numpy())
        return observation, [Experience(rewards, ended)]

    def _learn(self) -> None:
        """The updates due after this vector step."""
        before = self._due(self.step)
        for _ in range(self._due(self.step + self.occasion.environments) - before):
            self._update()

    def _due(self, step: int) -> int:
        return max(0, step - self.parameters.learning_starts) // self.parameters.steps_per_update

    def _update(self) -> None:
        size, occasion, network = self.parameters.batch_size, self.occasion, self.network
        random = generator(Purpose.REPLAY, occasion.seed, network.updates)
        members = random.integers(0, occasion.environments, size)
        slots = random.integers(0, self.replay.filled, size)
        batch = self.replay.pick(members, slots, network.vector.device)
        (loss(network.leaves, self._target_views, batch, self.parameters.discount) / size).backward()  # type: ignore[no-untyped-call]
        occasion.group.add_up(network.gradient)
        rate = self.parameters.learning_rate * max(0.0, 1.0 - self.step / occasion.total_steps)
        network.adam(rate, self.parameters.max_gradient_norm)
        if network.updates % self.parameters.target_update == 0:
            self.target.copy_(network.vector)

    def shared(self) -> Arrays:
        """See Learner.shared."""
        counters = np.asarray([self.step, self.replay.position, self.replay.filled], dtype=np.int64)
        return self.network.state() | {"target": self.target.cpu().numpy().copy(), "counters": counters}

    def own(self) -> Arrays:
        """See Learner.own: the replay rings."""
        return self.replay.state()

    def restore(self, shared: Arrays, own: Arrays) -> None:
        """See Learner.restore."""
        self.network.restore(shared)
        self.target.copy_(torch.from_numpy(np.array(shared["target"], dtype=np.float32)))
        self.step, position, filled = (int(value) for value in shared["counters"])
        self.replay.restore(own, position, filled)
