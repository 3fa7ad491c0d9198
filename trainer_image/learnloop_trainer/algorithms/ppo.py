"""Proximal policy optimisation with a clipped objective.

Schulman, Wolski, Dhariwal, Radford & Klimov (2017), arXiv 1707.06347, equation 7 (here with the sign of a loss):

    L(theta) = E_t[ -min(r_t A_t, clip(r_t, 1 - eps, 1 + eps) A_t) + c_v (V(s_t) - R_t)^2 / 2 - c_e H(pi(.|s_t)) ]
    r_t = pi_theta(a_t|s_t) / pi_old(a_t|s_t),    R_t = A_t + V_old(s_t)

with advantages A_t by GAE(lambda), Schulman et al. (2016), arXiv 1506.02438, equation 16.

Options: dual clip (`dualClip` c, Ye et al., 2020, arXiv 1912.09729, equation 4) puts max(min(...), c A_t) in the place
of min(...) where A_t < 0. So one unlucky sample with a huge ratio cannot dominate. `clipEnd` narrows eps over the run.

Deviations, all deliberate:
- The learning rate falls linearly to zero, as in the paper's Atari runs (`learningRateSchedule` changes that).
- Advantages are normalised over the whole batch of all ranks, not per minibatch.
- Minibatches are drawn from the batch of *all* ranks; each rank sums over its own part of a minibatch and the sums are
  added up. One rank and many ranks therefore compute the same update, up to the order of floating-point additions.
- A truncated episode bootstraps from the value of its real last observation; only termination means zero.
- Values and old log-probabilities are computed in one pass after the rollout; the actor itself is numpy.
- Policy and value function share no layer. No value clipping, no early stop by KL.
- The policy's distribution follows from the environment's actions (see `heads`): categorical, squashed Gaussian with a
  deviation that does not depend on the state, or both. A squashed action's density has a factor that cancels in r_t.
- The gradient is written out by hand (Gradients); the tests compare it with autograd's of the equation above.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment, randomness, spaces
from learnloop_trainer import distributed, floating_point
from learnloop_trainer.algorithms.action_heads import DEVIATION, LEAST, MOST, Head, fitting
from learnloop_trainer.algorithms.base import (
    ALL_ACTIONS,
    Arrays,
    Experience,
    Occasion,
    StatefulLearner,
    Traits,
    head_outputs,
    register,
)
from learnloop_trainer.neural import observation_normalisation, schedules
from learnloop_trainer.neural.networks import Floats, Network, Stack, dense, forward, forward_numpy, side_by_side

ACTIVATION = "tanh"
TELL_SECONDS, TELL_SAMPLES = 1.0, 256  # how often figures of an update are worked out, and of how many samples


@dataclass(frozen=True, slots=True)
class Rollout:
    """`horizon` steps of this rank's environments; leading axes [horizon, environments]."""

    observation: spaces.Observations  # [..., observations], as the networks see them
    successor: spaces.Observations  # [..., observations], the true next state
    action: spaces.Actions  # as the head keeps them
    reward: Floats
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples in any order; leading axis [samples]."""

    observation: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor

    def pick(self, order: NDArray[np.int64]) -> "SampleBatch":
        """These samples, in this order, in one gather per field."""
        index = torch.from_numpy(order).to(self.action.device)
        return SampleBatch(*(getattr(self, field).index_select(0, index) for field in self.__slots__))

    def cut(self, sizes: list[int]) -> Iterator["SampleBatch"]:
        """Consecutive pieces of these sizes, without copying."""
        return map(SampleBatch, *(getattr(self, field).split(sizes) for field in self.__slots__))


def init(parameters: Parameters, observations: int, head: Head, seed: int, device: torch.device) -> Network:
    """Fresh policy and value networks; a nearly uniform first policy, or one around the middle of its bounds."""
    sizes = [observations, *parameters.hidden]
    policy, value = dense("policy", [*sizes, head.outputs], 0.01, seed, 0), dense("value", [*sizes, 1], 1.0, seed, 1)
    return Network(side_by_side(policy, value) | head.parameters(), device)


def act(policy: Mapping[str, Floats], head: Head, observation: spaces.Observations, noise: Floats) -> spaces.Actions:
    """Sample actions, as the head keeps them, for observations [n, observations] with the head's noise."""
    return head.draw(policy, forward_numpy(policy, "policy", ACTIVATION, observation), noise)


def advantages(rollout: Rollout, value: Floats, successor_value: Floats, discount: float, gae_lambda: float) -> Floats:
    """GAE(lambda) for all environments together; shapes [horizon, environments]."""
    delta = rollout.reward + discount * successor_value * ~rollout.terminated - value
    decay = np.float32(discount * gae_lambda) * ~(rollout.terminated | rollout.truncated)
    result, running = np.empty_like(delta), np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        result[t] = running
    return result


def loss(leaves: Mapping[str, torch.Tensor], head: Head, batch: SampleBatch, parameters: Parameters) -> torch.Tensor:
    """The sum of the loss over the samples (not the mean: ranks add their sums up), as the paper has it.

    What `Gradients.compute` differentiates; here for the reader, and for the tests that compare with autograd.
    """
    outputs = forward(leaves, "policy", ACTIVATION, batch.observation)
    value = forward(leaves, "value", ACTIVATION, batch.observation).squeeze(1)
    ratio = (head.log_prob(leaves, outputs, batch.action) - batch.log_prob).exp()
    clipped = ratio.clamp(1 - parameters.clip, 1 + parameters.clip)
    objective = torch.minimum(ratio * batch.advantage, clipped * batch.advantage)
    if parameters.dual_clip is not None:
        floor = torch.maximum(objective, parameters.dual_clip * batch.advantage)
        objective = torch.where(batch.advantage < 0, floor, objective)
    error = (value - batch.target).square().sum()
    entropy = head.entropy(leaves, outputs).sum()
    return 0.5 * parameters.value_coefficient * error - parameters.entropy_coefficient * entropy - objective.sum()


class PpoGradients:
    """The gradient of `loss`, worked out by hand: policy and value function side by side, no autograd."""

    def __init__(self, network: Network, head: Head, parameters: Parameters) -> None:
        """For this network; `parameters` give the weights of the terms."""
        last = len(parameters.hidden)
        self._trunk = Stack(network, ["policy", "value"], ACTIVATION, range(last), squash_last=True)
        self._policy = Stack(network, ["policy"], ACTIVATION, range(last, last + 1))
        self._value = Stack(network, ["value"], ACTIVATION, range(last, last + 1))
        self._head, self._parameters = head.on(network), parameters
        self.clip = parameters.clip  # the caller narrows it where a schedule says so

    def compute(self, batch: SampleBatch, count: int) -> None:
        """Put the gradient of `loss / count` in the network's flat gradient."""
        size = len(batch.action)
        self._trunk.forward(batch.observation)
        trunk = self._trunk.columns
        outputs, value = self._policy.through(trunk[:1])[0], self._value.through(trunk[1:])[0]
        log_prob = self._head.evaluate(outputs, batch.action)
        pull = self._by_log_prob(log_prob, batch).div_(count)
        self._head.backward(pull, self._parameters.entropy_coefficient / count, self._policy.incoming(size)[0])
        error = torch.sub(value, batch.target.unsqueeze(1), out=self._value.incoming(size)[0])
        error.mul_(self._parameters.value_coefficient / count)
        into = self._trunk.incoming(size)
        self._policy.backward(size, into=into[:1])
        self._value.backward(size, into=into[1:])
        self._trunk.backward(size)

    def _by_log_prob(self, log_prob: torch.Tensor, batch: SampleBatch) -> torch.Tensor:
        """-r A where the clip is not active, else 0 [n]; overwrites its first argument."""
        ratio = log_prob.sub_(batch.log_prob).exp_()
        gain = ratio * batch.advantage
        clipped = ratio.clamp_(1 - self.clip, 1 + self.clip).mul_(batch.advantage)
        active = gain <= clipped
        if self._parameters.dual_clip is not None:
            active &= (batch.advantage >= 0) | (gain >= self._parameters.dual_clip * batch.advantage)
        return gain.mul_(active).neg_()


def moments(advantage: torch.Tensor, group: distributed.Group) -> tuple[float, float]:
    """Collective: mean and deviation of the samples of all ranks."""
    numbers = advantage.double()
    count, total, squares = group.sum([float(len(numbers)), float(numbers.sum()), float((numbers * numbers).sum())])
    mean = total / count
    return mean, max(squares / count - mean * mean, 0.0) ** 0.5


def prepare(
    network: Network,
    head: Head,
    rollout: Rollout,
    parameters: Parameters,
    occasion: Occasion,
) -> SampleBatch:
    """Old log-probabilities, normalised advantages and value targets of a rollout; samples in env-major order.

    Within torch.inference_mode.
    """
    device = network.vector.device

    def flat(array: NDArray[np.generic]) -> torch.Tensor:
        swapped = np.ascontiguousarray(array.swapaxes(0, 1))
        return torch.from_numpy(swapped.reshape(-1, *array.shape[2:])).to(device)

    observation, action = flat(rollout.observation), flat(rollout.action)
    outputs = forward(network.leaves, "policy", ACTIVATION, observation)
    value = forward(network.leaves, "value", ACTIVATION, observation).squeeze(1)
    next_value = forward(network.leaves, "value", ACTIVATION, flat(rollout.successor)).squeeze(1)
    shape = (rollout.reward.shape[1], rollout.reward.shape[0])
    values = value.cpu().numpy().reshape(shape).T
    next_values = next_value.cpu().numpy().reshape(shape).T
    log_prob = head.log_prob(network.leaves, outputs, action)
    advantage = flat(advantages(rollout, values, next_values, parameters.discount, parameters.gae_lambda))
    target = advantage + value
    mean, deviation = moments(advantage, occasion.group)
    advantage = (advantage - mean) / (deviation + 1e-8)
    return SampleBatch(observation, action, log_prob, advantage, target)


def update(
    network: Network,
    gradients: PpoGradients,
    batch: SampleBatch,
    parameters: Parameters,
    occasion: Occasion,
    rate: float,
) -> None:
    """`epochs` passes over the batch of all ranks; `batch` is this rank's part of it."""
    share, horizon = occasion.group.place.share(occasion.environments), parameters.horizon
    low, high, total = share.start * horizon, share.stop * horizon, occasion.environments * horizon
    edges = [total * part // parameters.minibatches for part in range(parameters.minibatches + 1)]
    for _ in range(parameters.epochs):
        order = randomness.generator(randomness.Purpose.SHUFFLE, occasion.seed, network.updates).permutation(total)
        local = (order >= low) & (order < high)
        sizes = np.diff(np.concatenate(([0], np.cumsum(local)))[edges]).tolist()
        for minibatch, size in zip(batch.pick(order[local] - low).cut(sizes), np.diff(edges), strict=True):
            if size:  # more minibatches than samples leave some empty, on all ranks alike
                gradients.compute(minibatch, int(size))
                occasion.group.add_up(network.gradient)
                network.adam(rate, parameters.max_gradient_norm)


class Ppo(StatefulLearner):
    """PPO on this rank's environments."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        device: torch.device,
    ) -> None:
        self.head = fitting(environment)
        network = init(parameters, environment.observations, self.head, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network)
        self._normaliser = (
            observation_normalisation.Normaliser(environment.observations)
            if parameters.normalise_observations
            else None
        )
        if self._normaliser is not None:
            self.network.fixed = self._normaliser.arrays()
        self._gradients = PpoGradients(self.network, self.head, parameters)
        self._figures_at = -TELL_SECONDS

    def iterate(self, observation: spaces.Observations) -> tuple[spaces.Observations, list[Experience]]:
        observation, rollout = self._collect(observation)
        return observation, [self.learn(rollout)]

    def learn(self, rollout: Rollout) -> Experience:
        """One update from a rollout."""
        floating_point.require_finite(self.step, observation=rollout.successor, reward=rollout.reward)
        if self._normaliser is not None:
            rollout.successor[:] = self._normaliser.apply(rollout.successor)
            self._normaliser.absorb(self.occasion.group)
            self.network.fixed = self._normaliser.arrays()
        done, rate = self.step / self.occasion.total_steps, self.rate()
        self._gradients.clip = schedules.between(self.parameters.clip, self.parameters.clip_end, done)
        with torch.inference_mode():
            batch = prepare(self.network, self.head, rollout, self.parameters, self.occasion)
            update(self.network, self._gradients, batch, self.parameters, self.occasion, rate)
        self.step += self.occasion.environments * self.parameters.horizon
        floating_point.require_learned(self.step, self.network.vector.sum(), rollout.observation, rollout.reward)
        ended = rollout.terminated | rollout.truncated
        return Experience(rollout.reward, ended, self._update_figures(batch), rollout.action)

    def _update_figures(self, batch: SampleBatch) -> dict[str, float]:
        """Of this rank's first samples, once a second: what the update made of them. Changes nothing."""
        now = time.monotonic()
        if now - self._figures_at < TELL_SECONDS:
            return {}
        self._figures_at = now
        with torch.inference_mode():
            few = next(batch.cut([min(TELL_SAMPLES, len(batch.action)), max(0, len(batch.action) - TELL_SAMPLES)]))
            outputs = forward(self.network.leaves, "policy", ACTIVATION, few.observation)
            value = forward(self.network.leaves, "value", ACTIVATION, few.observation).squeeze(1)
            change = self.head.log_prob(self.network.leaves, outputs, few.action) - few.log_prob
            ratio = change.exp()
            bounded = ratio.clamp(1 - self._gradients.clip, 1 + self._gradients.clip)
            gain = torch.minimum(ratio * few.advantage, bounded * few.advantage)
            figures = {
                "policy_loss": -gain.mean(),
                "value_loss": 0.5 * (value - few.target).square().mean(),
                "value": value.mean(),
                "entropy": self.head.entropy(self.network.leaves, outputs).mean(),
                # Never negative, and unbiased (J. Schulman, "Approximating KL divergence", 2020): r - 1 - log r.
                "kl_divergence": (ratio - 1.0 - change).mean(),
            }
        return {name: float(figure) for name, figure in figures.items()}

    def _collect(self, observation: spaces.Observations) -> tuple[spaces.Observations, Rollout]:
        environment, horizon = self.environment, self.parameters.horizon
        shape = (horizon, len(environment.members))
        steps = self.step // self.occasion.environments + np.arange(horizon)[:, None, None]
        noise = self.head.noise(self.occasion.seed, steps, np.asarray(environment.members)[None, :, None])
        rollout = Rollout(
            observation=np.empty((*shape, environment.observations), dtype=np.float32),
            successor=np.empty((*shape, environment.observations), dtype=np.float32),
            action=self.head.room(shape),
            reward=np.empty(shape, dtype=np.float32),
            terminated=np.empty(shape, dtype=np.bool_),
            truncated=np.empty(shape, dtype=np.bool_),
        )
        policy = self.network.actor()
        for t in range(horizon):
            rollout.observation[t] = observation if self._normaliser is None else self._normaliser.see(observation)
            rollout.action[t] = action = act(policy, self.head, rollout.observation[t], noise[t])
            step = environment.step(self.head.executed(action))
            rollout.successor[t], rollout.reward[t] = step.successor, step.reward
            rollout.terminated[t], rollout.truncated[t] = step.terminated, step.truncated
            observation = step.observation
        return observation, rollout

    def shared(self) -> Arrays:
        return super().shared() | (self._normaliser.state() if self._normaliser is not None else {})

    def restore(self, shared: Arrays, own: Arrays) -> None:
        super().restore(shared, own)
        if self._normaliser is not None:
            self._normaliser.restore(shared)
            self.network.fixed = self._normaliser.arrays()


register(
    Traits(
        name="ppo",
        learner=Ppo,
        head="policy",
        activation=ACTIVATION,
        actions=ALL_ACTIONS,
        deviation=(DEVIATION, LEAST, MOST),
        preferences=head_outputs("policy", ACTIVATION),
        draws=True,
    )
)
