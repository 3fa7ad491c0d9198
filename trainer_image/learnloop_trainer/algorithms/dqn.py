"""Deep Q-learning with double targets.

Mnih et al. (2015), doi 10.1038/nature14236, algorithm 1; target of van Hasselt, Guez & Silver (2016), arXiv 1509.06461,
equation 4:

    y = r + gamma (1 - terminated) Q_target(s', argmax_a Q(s', a)),    L = E[ (Q(s, a) - y)^2 ]

Options, off by default: prioritised replay (`prioritized`, see replay.py), whose importance weights multiply the
squared errors; curiosity (`curiosity`, see icm.py).

Deviations, all deliberate:
- Many environments act together; one update follows every `steps_per_update` environment steps of all ranks together.
- The learning rate falls linearly to zero, so that the last policy is not the victim of the last few updates
  (`learningRateSchedule` changes that).
- Adam instead of RMSProp, and the plain squared error with a clipped gradient norm. With the paper's clipped error the
  many transitions inside an episode outvote the few that end one, and Q-values diverge (measured on CartPole).
- Each environment owns a ring of the replay buffer. A batch is drawn from the rings of *all* ranks, each rank sums over
  the transitions it holds and the sums are added up: one rank and many ranks compute the same update, up to the
  order of floating-point additions.
- The gradient is written out by hand (Gradients); the tests compare it with autograd's of the equation above.
- Truncation is not termination: s' is the real last observation and its value counts.
- Where the agent has logged experience, a batch is `localBatchSize` transitions of the run's own and `memoryBatchSize`
  logged ones, drawn uniformly; what was read becomes part of the checkpoint (see from_log.MixedReplay).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import Step, VectorEnvironment, randomness
from learnloop_environments.spaces import Observations
from learnloop_trainer import floating_point, replay
from learnloop_trainer.algorithms import base, icm, logged_batches
from learnloop_trainer.neural import networks, schedules

ACTIVATION = "relu"


def init(parameters: Parameters, observations: int, actions: int, seed: int, device: torch.device) -> networks.Network:
    return networks.Network(networks.dense("q", [observations, *parameters.hidden, actions], 1.0, seed, 0), device)


def epsilon(parameters: Parameters, step: int, total_steps: int, *, warm: bool) -> float:
    """Exploration rate: falls linearly over the first `exploration_fraction` of the run, then stays."""
    done = step / max(1.0, parameters.exploration_fraction * total_steps)
    return schedules.explored(parameters.epsilon_start, parameters.epsilon_end, done, warm=warm)


def act(
    q: Mapping[str, networks.Floats], observation: Observations, explore: NDArray[np.bool_], random: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Greedy actions [n], but `random` ones [n] where `explore` [n] says so."""
    return np.where(explore, random, networks.forward_numpy(q, "q", ACTIVATION, observation).argmax(axis=1))


def loss(
    leaves: Mapping[str, torch.Tensor], target: Mapping[str, torch.Tensor], batch: replay.Transitions, discount: float
) -> torch.Tensor:
    """The sum of the squared errors over the transitions (not the mean: ranks add their sums up), as the paper has it.

    What `Gradients.compute` differentiates; here for the reader, and for the tests that compare with autograd.
    """
    with torch.no_grad():
        best = networks.forward(leaves, "q", ACTIVATION, batch.successor).argmax(dim=1, keepdim=True)
        future = networks.forward(target, "q", ACTIVATION, batch.successor).gather(1, best).squeeze(1)
        goal = batch.reward + discount * batch.alive * future
    value = networks.forward(leaves, "q", ACTIVATION, batch.observation).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    return (value - goal).square().sum()


class DqnGradients:
    """The gradient of `loss`, worked out by hand: no autograd."""

    def __init__(self, network: networks.Network, target: torch.Tensor, discount: float, layers: range) -> None:
        """For this network of these layers and its target's flat parameters."""
        self._online = networks.Stack(network, ["q"], ACTIVATION, layers)
        self._target = networks.Stack(network, ["q"], ACTIVATION, layers, vector=target)
        self._discount = discount

    def compute(self, batch: replay.Transitions, count: int, weights: torch.Tensor | None = None) -> torch.Tensor:
        """Put the gradient of `loss / count` in the network's flat gradient; returns the errors Q(s, a) - y [n].

        `weights` [n] multiply the squared errors. Within torch.inference_mode.
        """
        size, action = len(batch.observation), batch.action.unsqueeze(1)
        values, following = self._online.forward(batch.observation, batch.successor)[0].split_with_sizes((size, size))
        best = following.max(1, keepdim=True).indices  # ten times the speed of argmax on columns
        future = self._target.through(self._online.entered[..., size:])[0].gather(1, best)
        alive, reward = batch.alive.unsqueeze(1), batch.reward.unsqueeze(1)
        goal = torch.addcmul(reward, alive, future, value=self._discount)
        error = values.gather(1, action).sub_(goal)
        slope = (error if weights is None else error * weights.unsqueeze(1)).mul(2.0 / count)
        self._online.incoming(size)[0].zero_().scatter_(1, action, slope)
        self._online.backward(size)
        return error.squeeze(1)


class Dqn(logged_batches.ReplayLearner):
    """DQN on this rank's environments."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network)
        self._gradients = DqnGradients(
            network, self.targets[""], parameters.discount, range(len(parameters.hidden) + 1)
        )
        self.priorities = (
            replay.Priorities(occasion.environments, self.length, parameters.priority_exponent)
            if parameters.prioritized
            else None
        )
        self.curiosity = None
        if parameters.curiosity is not None:
            sizes = (environment.observations, environment.actions)
            self.curiosity = icm.Icm(parameters.curiosity, *sizes, occasion, device)
        self.memory = logged_batches.MixedReplay(occasion, parameters, parameters.batch_size)
        self._drawn = {
            size: randomness.Draws((2, size), randomness.Purpose.REPLAY, occasion.seed)
            for size in (parameters.batch_size, parameters.local_batch_size)
        }
        self._errors: torch.Tensor | None = None

    def iterate(self, observation: Observations) -> tuple[Observations, list[base.Experience]]:
        """CHUNK vector steps with the updates that are due between them."""
        environment = self.environment
        self.memory.ask(self.network.vector.device)
        explore, random = self._exploration()
        rewards = np.empty((logged_batches.CHUNK, len(environment.members)), dtype=np.float32)
        ended = np.empty(rewards.shape, dtype=np.bool_)
        actions = np.empty(rewards.shape, dtype=np.int64)
        with torch.inference_mode():
            for t in range(logged_batches.CHUNK):
                action = act(self.network.actor(), observation, explore[t], random[t])
                actions[t] = action
                step = environment.step(action)
                self._store(observation, action, step)
                rewards[t], ended[t] = step.reward, step.terminated | step.truncated
                observation = step.observation
                self._learn()
                self.step += self.occasion.environments
        floating_point.require_finite(self.step, observation=observation, reward=rewards)
        floating_point.require_learned(self.step, self.network.vector.sum(), *self.replay.learned_from())
        return observation, [base.Experience(rewards, ended, self._update_figures(), actions)]

    def _exploration(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """For the next CHUNK vector steps and this rank's environments: explore?, and if so with which action."""
        environments = self.occasion.environments
        draws = randomness.uniforms(
            randomness.Purpose.EXPLORE,
            self.occasion.seed,
            self.step // environments + np.arange(logged_batches.CHUNK)[None, :, None],
            np.arange(2)[:, None, None],
            np.asarray(self.environment.members)[None, None, :],
        )
        steps = range(self.step, self.step + logged_batches.CHUNK * environments, environments)
        warm = self.network.warm
        rates = [epsilon(self.parameters, step, self.occasion.total_steps, warm=warm) for step in steps]
        explore = draws[0] < np.asarray(rates)[:, None]
        return explore, (draws[1] * self.environment.actions).astype(np.int64)

    def _store(self, observation: Observations, action: NDArray[np.int64], step: Step) -> None:
        if self.priorities is not None:
            self.priorities.added(self.replay.position)
        self.replay.add(observation, action, step)

    def _learn(self) -> None:
        for _ in range(self.updates_due()):
            ranked = self.priorities
            self._errors = self._update() if ranked is None else self._update_by_priority(ranked)

    def _update(self) -> torch.Tensor:
        """Returns the errors of this rank's part of the batch, logged transitions last."""
        size = self.memory.local
        places = self.places(self._drawn[size].at(self.network.updates))
        own = self.replay.pick(*places, self.network.vector.device)
        batch = self._wondered(self.memory.joined(own, self.network.updates))
        errors = self._gradients.compute(batch, size + self.memory.logged)
        self._apply()
        return errors

    def _wondered(self, batch: replay.Transitions) -> replay.Transitions:
        """With the intrinsic rewards of curiosity, which learns from the batch at the same time."""
        if self.curiosity is None:
            return batch
        reward = batch.reward + self.curiosity.reward(batch)
        self.curiosity.update(batch, self.memory.local + self.memory.logged)
        return replace(batch, reward=reward)

    def _update_by_priority(self, priorities: replay.Priorities) -> torch.Tensor:
        """All ranks walk the same tree; each knows the errors of its own transitions, and the sum is all of them.

        Logged transitions are drawn uniformly, and weigh 1. Returns what `_update` does.
        """
        size, occasion, device = self.memory.local, self.occasion, self.network.vector.device
        leaves = priorities.sample(self._drawn[size].at(self.network.updates)[0])
        slots, members = np.divmod(leaves, occasion.environments)
        done = min(1.0, self.step / occasion.total_steps)
        beta = self.parameters.importance_start + done * (1.0 - self.parameters.importance_start)
        weights = torch.from_numpy(priorities.weights(leaves, self.replay.filled * occasion.environments, beta))
        local = torch.from_numpy(self.replay.local_mask(members))
        own = self.replay.pick(members, slots, device)
        batch = self._wondered(self.memory.joined(own, self.network.updates))
        given = torch.cat((weights[local], weights.new_ones(len(self.memory.share())))).to(device)
        slopes = self._gradients.compute(batch, size + self.memory.logged, given)
        errors = torch.zeros(size, device=device)
        errors[local] = slopes[: len(slopes) - len(self.memory.share())]
        occasion.group.add_up(errors)
        self._apply()
        priorities.learned(leaves, errors.cpu().numpy())
        return slopes

    def _update_figures(self) -> dict[str, float]:
        """Collective: the mean squared errors of the newest update, if there was one since the last call."""
        if self._errors is None:
            return {}
        squared, logged = self._errors.square(), len(self.memory.share())
        sums = squared[: len(squared) - logged].sum().item(), squared[len(squared) - logged :].sum().item()
        self._errors = None
        return logged_batches.mean_losses(self.occasion.group, *sums, self.memory)

    def _apply(self) -> None:
        self.apply(self.network, clear=False)  # the next gradient replaces this one
        self.follow()

    def shared(self) -> base.Arrays:
        state = super().shared() | self.memory.state()
        for part in (self.curiosity, self.priorities):
            state |= part.state() if part is not None else {}
        return state

    def restore(self, shared: base.Arrays, own: base.Arrays) -> None:
        super().restore(shared, own)
        self.memory.restore(shared, self.network.vector.device)
        for part in (self.curiosity, self.priorities):
            if part is not None:
                part.restore(shared)


base.register_q_learner("dqn", Dqn, ACTIVATION)
