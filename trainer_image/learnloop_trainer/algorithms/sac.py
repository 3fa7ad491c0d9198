"""Soft actor-critic with a learned temperature, for continuous actions.

Haarnoja et al. (2018), arXiv 1812.05905, equations 5 (critics), 9 (policy) and 18 (temperature), algorithm 1:

    y = r + gamma (1 - terminated) (min_i Q_target_i(s', a') - alpha log pi(a'|s')),    a' ~ pi(.|s')
    L(Q_i) = E[ (Q_i(s, a) - y)^2 / 2 ]
    L(pi) = E[ alpha log pi(a~|s) - min_i Q_i(s, a~) ],    a~ = tanh(mu + sigma e)
    L(alpha) = -E[ log alpha (log pi(a~|s) + H) ],    H = -(dimensions of an action)
    log pi(a|s) = log N(u; mu, sigma) - sum log(1 - tanh(u)^2),    u = mu + sigma e    (appendix C, equation 26)

Deviations, all deliberate:
- A run that begins from a trained policy plays it from its first step, and at first lets the critics alone learn.
- Many environments may act together; one update follows every `steps_per_update` environment steps of all ranks.
- Before `learning_starts` actions are uniform, as in the authors' code. log sigma is clipped to [-20, 2], as there.
- log alpha stands where equation 18 has alpha, as in the authors' code.
- The twin critics are one stack of batched products, and all gradients are written out by hand (see `SacUpdate`): the
  policy's update computes no gradient of the critics' parameters. The tests compare with autograd.
- Actions are stored, and seen by the critics, scaled to [-1, 1]; the exported graph scales them back.
- Where the agent has logged experience, a batch is `localBatchSize` transitions of the run's own and `memoryBatchSize`
  logged ones; what was read becomes part of the checkpoint (see from_log.MixedReplay).
"""

import math
from collections.abc import Mapping

import numpy as np
import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment, randomness, spaces
from learnloop_trainer import floating_point, replay
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion, Traits, register, unscaled
from learnloop_trainer.algorithms.logged_batches import CHUNK, MixedReplay, ReplayLearner, mean_losses
from learnloop_trainer.neural.networks import Floats, Network, Stack, dense, forward, forward_numpy, side_by_side
from learnloop_trainer.neural.schedules import held, step_size

ACTIVATION = "relu"
LOG_DEVIATION = (-20.0, 2.0)
EPSILON = 1e-8  # of Adam, as in the authors' code
UNCLIPPED = math.inf
DENSITY_OFFSET = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)  # the constants in log pi, for each number


def init(parameters: Parameters, observations: int, dimensions: int, seed: int, device: torch.device) -> list[Network]:
    sizes = [*parameters.hidden]
    actor = dense("actor", [observations, *sizes, 2 * dimensions], 0.01, seed, 0)
    critics = [dense(f"critic{i}", [observations + dimensions, *sizes, 1], 1.0, seed, 1 + i) for i in range(2)]
    temperature = np.asarray([math.log(parameters.initial_temperature)], dtype=np.float32)
    return [Network(arrays, device) for arrays in (actor, side_by_side(*critics), {"log_temperature": temperature})]


def act(policy: Mapping[str, Floats], observation: spaces.Observations, normal: Floats) -> Floats:
    """Sampled actions [n, dimensions] in (-1, 1) with standard normal noise of the same shape."""
    outputs, dimensions = forward_numpy(policy, "actor", ACTIVATION, observation), normal.shape[1]
    deviation = np.minimum(np.maximum(outputs[:, dimensions:], LOG_DEVIATION[0]), LOG_DEVIATION[1])
    return np.tanh(outputs[:, :dimensions] + np.exp(deviation) * normal)


def log_density(before: torch.Tensor, log_deviation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Of tanh(before) [..., dimensions], where before is the mean and the deviation times the noise; [...]."""
    # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not round to log 0
    shrink = torch.nn.functional.softplus(before.mul(-2.0)).add_(before)
    density = noise.square().mul_(-0.5).sub_(log_deviation).add_(shrink, alpha=2.0)
    return density.sum(-1).sub_(noise.shape[-1] * DENSITY_OFFSET)


class SquashedGaussian:
    """The squashed Gaussian with its backward pass. Call it within torch.inference_mode."""

    def __init__(self, network: Network, layers: range) -> None:
        self._stack = Stack(network, ["actor"], ACTIVATION, layers)

    def sample(self, noise: torch.Tensor, *observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [n, dimensions] in (-1, 1) and their log-densities [n]; several observations make one batch."""
        self._mean, self._raw = self._stack.forward(*observations)[0].chunk(2, dim=1)
        self._clipped = self._raw.clamp(*LOG_DEVIATION)
        self._spread = self._clipped.exp().mul_(noise)
        before = self._mean + self._spread
        self._action = torch.tanh(before)
        return self._action, log_density(before, self._clipped, noise)

    def backward(self, by_action: torch.Tensor, temperature: torch.Tensor, count: int) -> None:
        """Gradient of sum(temperature * log pi + G(action)) / count by the first samples; by_action = dG/da [n, dims].

        d log pi / du = 2 tanh(u), and through the noise du / d log sigma = sigma e.
        """
        size = len(by_action)
        action, spread = self._action[:size], self._spread[:size]
        inside = self._raw[:size] == self._clipped[:size]
        by_mean, by_deviation = self._stack.incoming(size)[0].chunk(2, dim=1)
        by_mean.copy_(action.square().neg_().add_(1.0).mul_(by_action))
        by_mean.add_((2.0 * temperature) * action).div_(count)
        by_deviation.copy_(spread.mul(by_mean).sub_(temperature / count).mul_(inside))
        self._stack.backward(size)


class SacUpdate:
    """One update of everything from a batch."""

    def __init__(self, networks: list[Network], target: torch.Tensor, parameters: Parameters, occasion: Occasion):
        layers = range(len(parameters.hidden) + 1)
        self._networks, self._parameters, self._occasion = networks, parameters, occasion
        self.policy = SquashedGaussian(networks[0], layers)
        names = ["critic0", "critic1"]
        self.critics = Stack(networks[1], names, ACTIVATION, layers)
        self.targets = Stack(networks[1], names, ACTIVATION, layers, vector=target)
        self._target = target
        self.watched = False
        self.losses: torch.Tensor | None = None  # of the critics by transition [n], of the newest watched update

    def sample(self, batch: replay.Transitions, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [2, n, dimensions] and log-densities [2, n] of the observations and of their successors, in one go:
        only the critics change between the two uses.
        """
        action, density = self.policy.sample(noise.flatten(0, 1), batch.observation, batch.successor)
        return action.view(noise.shape), density.view(noise.shape[:2])

    def goal(
        self, batch: replay.Transitions, action: torch.Tensor, density: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        """The critics' target y [n]; actions and log-densities are the successors'."""
        future = self.targets.forward(torch.cat((batch.successor, action), 1)).squeeze(2).amin(0)
        future.addcmul_(density, temperature, value=-1.0)
        return torch.addcmul(batch.reward, batch.alive, future, value=self._parameters.discount)

    def by_critics(self, batch: replay.Transitions, goal: torch.Tensor, count: int) -> None:
        value = self.critics.forward(torch.cat((batch.observation, batch.action), 1))
        error = torch.sub(value, goal.view(1, -1, 1), out=self.critics.incoming(len(goal)))
        if self.watched:
            self.losses = error.square().mul_(0.5).sum((0, 2))
        error.div_(count)
        self.critics.backward(len(goal))

    def by_policy(self, batch: replay.Transitions, action: torch.Tensor, temperature: torch.Tensor, count: int) -> None:
        """Gradient of the policy's loss; the actions are the observations', from the newest `sample`."""
        value = self.critics.forward(torch.cat((batch.observation, action), 1))
        incoming = self.critics.incoming(len(action))
        torch.eq(value, value.amin(0, keepdim=True), out=incoming).neg_()
        by_action = action.new_empty((2, *action.shape))
        rows = slice(batch.observation.shape[1], None)
        self.critics.backward(len(action), into=by_action, parameters=False, rows=rows)
        self.policy.backward(by_action.sum(0), temperature, count)

    def by_temperature(self, density: torch.Tensor, dimensions: int, count: int) -> None:
        """Gradient of the temperature's loss; the log-densities, which it spends, are of the observations' actions."""
        wanted = -dimensions * self._parameters.target_entropy_scale
        self._networks[2].gradient.copy_(density.add_(wanted).sum().div_(-count))

    def run(self, batch: replay.Transitions, noise: torch.Tensor, count: int, done: float = 0.0) -> None:
        """`batch` and `noise` [2, n, dimensions] are this rank's part of `count` transitions; `done`: of the run."""
        parameters, (actor, critics, temperature) = self._parameters, self._networks
        rate = step_size(parameters, parameters.learning_rate, done)
        scale = temperature.vector.exp()
        action, density = self.sample(batch, noise)
        self.by_critics(batch, self.goal(batch, action[1], density[1], scale), count)
        self._apply(critics, rate)
        if not held(done, warm=actor.warm):
            self.by_policy(batch, action[0], scale, count)
            self._apply(actor, rate)
            self.by_temperature(density[0], noise.shape[2], count)
            self._apply(temperature, rate)
        self._target.lerp_(critics.vector, parameters.target_rate)

    def _apply(self, network: Network, rate: float) -> None:
        self._occasion.group.add_up(network.gradient)
        limit = self._parameters.max_gradient_norm or UNCLIPPED
        network.adam(rate, limit, EPSILON, clear=False)  # the next gradient replaces this one


class Sac(ReplayLearner):
    """SAC on this rank's environments."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        assert environment.bounds is not None  # policy_training.begin refuses others, with field and fix
        self._bounds: spaces.Bounds = environment.bounds
        dimensions = environment.actions
        networks = init(parameters, environment.observations, dimensions, occasion.seed, device)
        network, self.critics, self.temperature = networks
        others = {"critics": self.critics, "temperature": self.temperature}
        super().__init__(
            parameters, environment, occasion, network, others=others, targets=["critics"], dimensions=dimensions
        )
        self._update = SacUpdate(networks, self.targets["critics"], parameters, occasion)
        self.memory = MixedReplay(occasion, parameters, parameters.batch_size)
        self._draw()

    def _draw(self) -> None:
        """From streams of random numbers as long as a batch is."""
        local, logged, seed = self.memory.local, self.memory.logged, self.occasion.seed
        self._draws = randomness.Draws((2, local), randomness.Purpose.REPLAY, seed)
        self._noise = randomness.Draws(
            (2, local + logged, self.environment.actions), randomness.Purpose.NOISE, seed, normal=True
        )

    def iterate(self, observation: spaces.Observations) -> tuple[spaces.Observations, list[Experience]]:
        """CHUNK vector steps with the updates that are due between them."""
        environment = self.environment
        if not self.memory.loaded:
            self.memory.ask(self.network.vector.device)
            self._draw()
        uniform, normal = self._exploration()
        rewards = np.empty((CHUNK, len(environment.members)), dtype=np.float32)
        ended = np.empty(rewards.shape, dtype=np.bool_)
        with torch.inference_mode():
            for t in range(CHUNK):
                random = self.step < self.parameters.learning_starts and not self.network.warm
                action = uniform[t] if random else act(self.network.actor(), observation, normal[t])
                step = environment.step(self._bounds.scale(action))
                self.replay.add(observation, action, step)
                rewards[t], ended[t] = step.reward, step.terminated | step.truncated
                observation = step.observation
                self._update.watched = t == CHUNK - 1
                self._learn()
                self.step += self.occasion.environments
        floating_point.require_finite(self.step, observation=observation, reward=rewards)
        weights = self.network.vector.sum() + self.critics.vector.sum()
        floating_point.require_learned(self.step, weights, *self.replay.learned_from())
        return observation, [Experience(rewards, ended, self._update_figures())]

    def _exploration(self) -> tuple[Floats, Floats]:
        """For the next CHUNK vector steps: uniform actions and standard normal noise [CHUNK, n, dimensions]."""
        first, second = randomness.uniforms(
            randomness.Purpose.ACTION,
            self.occasion.seed,
            self.step // self.occasion.environments + np.arange(CHUNK)[None, :, None, None],
            np.arange(2)[:, None, None, None],
            np.asarray(self.environment.members)[None, None, :, None],
            np.arange(self.environment.actions)[None, None, None, :],
        )
        normal = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)  # Box & Muller (1958)
        return (2.0 * first - 1.0).astype(np.float32), normal.astype(np.float32)

    def _learn(self) -> None:
        device, local = self.network.vector.device, self.memory.local
        for _ in range(self.updates_due()):
            number = self.critics.updates
            members, slots = self.places(self._draws.at(number))
            logged = local + np.asarray(self.memory.share(), dtype=np.int64)
            columns = np.concatenate((np.flatnonzero(self.replay.local_mask(members)), logged))
            noise = torch.from_numpy(self._noise.at(number)[:, columns].astype(np.float32)).to(device)
            batch = self.memory.joined(self.replay.pick(members, slots, device), number)
            self._update.run(batch, noise, local + self.memory.logged, self.step / self.occasion.total_steps)

    def _update_figures(self) -> dict[str, float]:
        """Collective: the critics' mean loss in the newest watched update, if there was one since the last call."""
        losses, logged = self._update.losses, len(self.memory.share())
        if losses is None:
            return {}
        self._update.losses = None
        sums = losses[: len(losses) - logged].sum().item(), losses[len(losses) - logged :].sum().item()
        return mean_losses(self.occasion.group, *sums, self.memory)

    def shared(self) -> Arrays:
        return super().shared() | self.memory.state()

    def restore(self, shared: Arrays, own: Arrays) -> None:
        super().restore(shared, own)
        self.memory.restore(shared, self.network.vector.device)
        self._draw()


def least_critic(learner: Sac, observation: spaces.Observations, taken: spaces.Actions) -> Floats:
    """Of actions as the environment takes them, the lesser of both critics' values."""
    pairs = np.concatenate((observation, unscaled(learner, taken)), axis=1)
    with torch.no_grad():
        leaves = learner.critics.leaves
        batch = torch.from_numpy(pairs).to(learner.critics.vector.device)
        both = [forward(leaves, name, ACTIVATION, batch).squeeze(1) for name in ("critic0", "critic1")]
        return np.asarray(torch.minimum(*both).cpu().numpy())


register(
    Traits(
        name="sac",
        learner=Sac,
        head="actor",
        activation=ACTIVATION,
        actions=frozenset({spaces.ActionType.CONTINUOUS}),
        deviation=(None, *LOG_DEVIATION),
        q_value=least_critic,
    )
)
