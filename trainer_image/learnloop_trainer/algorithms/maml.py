"""Model-agnostic meta-learning: weights from which few episodes are enough to learn a new task.

Finn, Abbeel & Levine (2017), arXiv 1703.03400, algorithm 3, with tasks T_i drawn from the ranges in `data.randomise`:

    theta_i' = theta - alpha grad L_i(theta),    L_i = -E[ log pi(a_t|s_t) A_t ]           (`adaptation_steps` times)
    theta <- theta - beta grad sum_i L_i'(theta_i'),    L_i' on new episodes of task i played with theta_i'

The gradient passes through the inner steps: second derivatives are kept (`first_order: true` drops them).

What is exported: after the last meta-update the policy is adapted to the *nominal* environment of its level, as it
would be to any other new task. Each inner step takes the `episodes` of one task. Evaluation plays that one, on held-out
seeds.

Deviations, all deliberate: Adam for the outer step instead of TRPO; the baseline of A_t is, at every step of an
episode, the mean return to go of the task's other episodes, 0 of those that are over; all tasks adapt side by side, and
the steps that some take while others still play are left out; alpha is the same everywhere.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment, errors, randomness, simulation, spaces, wrappers
from learnloop_trainer.algorithms.base import Experience, Occasion, StatefulLearner, Traits, register
from learnloop_trainer.floating_point import require_learned
from learnloop_trainer.neural.networks import Floats, Network, dense

ACTIVATION = "tanh"
Weights = Mapping[str, torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # seen, taken before tanh, gained, played
DEVIATION = 0.5  # of the policy's Gaussian, before squashing


def init(parameters: Parameters, observations: int, dimensions: int, seed: int, device: torch.device) -> Network:
    return Network(dense("actor", [observations, *parameters.hidden, dimensions], 0.1, seed, 0), device)


def mean(weights: Weights, x: torch.Tensor) -> torch.Tensor:
    """The policy's mean before tanh [tasks, n, dimensions] for observations [tasks, n, observations], task by task."""
    layer = 0
    while f"actor.{layer}.weight" in weights:
        flow = torch.tanh(x) if layer else x
        x = flow @ weights[f"actor.{layer}.weight"] + weights[f"actor.{layer}.bias"].unsqueeze(-2)
        layer += 1
    return x


def loss(
    weights: Weights, observation: torch.Tensor, before: torch.Tensor, gain: torch.Tensor, playing: torch.Tensor
) -> torch.Tensor:
    """L_i of each task [tasks]: observations and actions before tanh [tasks, n, ...], advantages [tasks, n].

    `playing` [tasks, n] is 1 where a step belongs to an episode, and 0 where that was over.
    """
    log_prob = -(before - mean(weights, observation)).square().sum(-1) / (2 * DEVIATION**2)
    return -(log_prob * gain * playing).sum(-1) / playing.sum(-1)


def surrogate(
    weights: Weights,
    old: Weights,
    observation: torch.Tensor,
    before: torch.Tensor,
    gain: torch.Tensor,
    playing: torch.Tensor,
) -> torch.Tensor:
    """L_i' [tasks] as an importance-weighted objective: its gradient at weights = old is that of `loss`."""
    new_square, old_square = ((before - mean(given, observation)).square().sum(-1) for given in (weights, old))
    ratio = ((old_square.detach() - new_square) / (2 * DEVIATION**2)).exp()
    return -(ratio * gain * playing).sum(-1) / playing.sum(-1)


def advantages(reward: NDArray[np.float32], playing: NDArray[np.bool_], tasks: int, discount: float) -> Floats:
    """Rewards [steps, tasks * episodes] to advantages alike, normalised within each task; 0 after an episode's end."""
    steps, members = reward.shape
    to_go = np.zeros((steps, members))
    running = np.zeros(members)
    for t in range(steps - 1, -1, -1):
        running = np.where(playing[t], reward[t] + discount * running, 0.0)
        to_go[t] = running
    split, counted = to_go.reshape(steps, tasks, -1), playing.reshape(steps, tasks, -1)
    gain = (split - split.mean(axis=2, keepdims=True)) * counted
    count = counted.sum(axis=(0, 2), keepdims=True)
    centre = gain.sum(axis=(0, 2), keepdims=True) / count
    spread = np.sqrt(((gain - centre) ** 2 * counted).sum(axis=(0, 2), keepdims=True) / count)
    return np.asarray((gain / (spread + 1e-8)).reshape(steps, members), dtype=np.float32)


class Maml(StatefulLearner):
    """MAML on this rank's part of each batch of tasks."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        """A fresh learner; raises ConfigError when the environment does not say what tasks there are."""
        world = wrappers.innermost(environment)
        if not isinstance(world, simulation.Simulation) or not world.conditions.randomise:
            fix = "give the ranges of its parameters that tasks are drawn from"
            raise errors.ConfigError("spec.data.randomise", "", "is empty: maml needs a family of tasks", fix)
        if len(environment.members) % parameters.episodes or occasion.group.place.size > 1:
            problem, fix = "does not divide into whole tasks", "let environments be tasks × episodes, and workers 0"
            raise errors.ConfigError("spec.maml.episodes", parameters.episodes, problem, fix)
        self._world: simulation.Simulation = world
        self.tasks = len(environment.members) // parameters.episodes
        network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network, targets=[""])
        self._meta = self.targets[""]  # the weights that adapt; `network` holds them until the end

    def iterate(self, observation: spaces.Observations) -> tuple[spaces.Observations, list[Experience]]:
        """One meta-update over a batch of tasks; adapts to the nominal task after the last one."""
        del observation
        experiences = self._meta_update()
        if self.step >= self.occasion.total_steps:
            self.finish()
        require_learned(self.step, self.network.vector.sum())
        return self._imposed({}), experiences

    def draw(self, occasion: int) -> dict[str, simulation.Floats64]:
        """Parameters of the tasks of one meta-update, the same for all episodes of a task [tasks * episodes]."""
        ranges = self._world.conditions.randomise
        draws = randomness.uniforms(
            randomness.Purpose.TASK,
            self.occasion.seed,
            occasion,
            np.arange(len(ranges))[:, None],
            np.arange(self.tasks),
        )
        return {
            name: np.repeat(low + (high - low) * draw, self.parameters.episodes)
            for (name, low, high), draw in zip(ranges, draws, strict=True)
        }

    def _meta_update(self) -> list[Experience]:
        parameters, network = self.parameters, self.network
        tasks = self.draw(network.updates)
        shared: Weights = {name: leaf.expand(self.tasks, *leaf.shape) for name, leaf in network.leaves.items()}
        steps, weights = 0, shared
        for inner in range(parameters.adaptation_steps):
            batch, experience = self._play(weights, tasks, inner)
            weights = self.adapt(weights, batch)
            steps += experience.reward.size
        batch, experience = self._play(weights, tasks, parameters.adaptation_steps)
        old = {name: weight.detach() for name, weight in weights.items()}
        torch.autograd.backward(surrogate(weights, old, *batch).mean())
        network.adam(self.rate(), parameters.max_gradient_norm)
        self.step += steps + experience.reward.size
        return [experience]

    def _imposed(self, tasks: Mapping[str, simulation.Floats64]) -> spaces.Observations:
        """New episodes of these tasks, through all wrappers: each of them looks at where an episode begins."""
        assert isinstance(self.environment, spaces.Imposable)  # a Simulation, or a wrapper around one
        return self.environment.impose(tasks)

    def adapt(self, weights: Weights, batch: Batch) -> Weights:
        """One inner step for every task; weights [tasks, ...]."""
        # No task's loss depends on another's weights: the gradient of the sum is all gradients together.
        given, exact = list(weights.values()), not self.parameters.first_order
        slopes = torch.autograd.grad(loss(weights, *batch).sum(), given, create_graph=exact)
        rate = self.parameters.adaptation_rate
        return {name: weight - rate * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)}

    def _play(self, weights: Weights, tasks: Mapping[str, simulation.Floats64], inner: int) -> tuple[Batch, Experience]:
        """One episode in every environment: what each task saw, did and gained [tasks, steps * episodes, ...].

        Environments whose episode is over play on until all are, and nothing of that is learned from or counted.
        """
        environment, count = self.environment, len(self.environment.members)
        observation = self._imposed(tasks)
        observations, taken = list[spaces.Observations](), list[Floats]()
        rewards, plays, ends = list[Floats](), list[simulation.Flags](), list[simulation.Flags]()
        numbers = (np.arange(count)[:, None], np.arange(environment.actions))
        when = self.network.updates, inner
        playing = np.ones(count, dtype=np.bool_)
        while playing.any():
            draws = randomness.uniforms(
                randomness.Purpose.ACTION, self.occasion.seed, *when, len(observations), *numbers
            )
            other = randomness.uniforms(
                randomness.Purpose.NOISE, self.occasion.seed, *when, len(observations), *numbers
            )
            normal = np.sqrt(-2.0 * np.log(draws)) * np.cos(2.0 * np.pi * other)  # Box & Muller (1958)
            with torch.no_grad():
                rows = torch.from_numpy(observation).view(self.tasks, -1, environment.observations)
                centre = mean(weights, rows.to(self.network.vector.device)).reshape(count, -1).cpu().numpy()
            before = (centre + DEVIATION * normal).astype(np.float32)
            assert environment.bounds is not None  # policy_training.begin refuses others
            step = environment.step(environment.bounds.scale(np.tanh(before)))
            over = step.terminated | step.truncated
            observations.append(observation)
            taken.append(before)
            rewards.append(np.where(playing, step.reward, np.float32(0)))
            plays.append(playing)
            ends.append(playing & over)
            playing, observation = playing & ~over, step.observation
        reward, played = np.stack(rewards), np.stack(plays)
        gain = advantages(reward, played, self.tasks, self.parameters.discount)

        def by_task(array: NDArray[np.float32]) -> torch.Tensor:
            split = array.reshape(len(array), self.tasks, -1, *array.shape[2:]).swapaxes(0, 1)
            whole = np.ascontiguousarray(split.reshape(self.tasks, -1, *array.shape[2:]))
            return torch.from_numpy(whole).to(self.network.vector.device)

        batch = (
            by_task(np.stack(observations)),
            by_task(np.stack(taken)),
            by_task(gain),
            by_task(played.astype(np.float32)),
        )
        return batch, Experience(reward, np.stack(ends))

    def _inner_steps(self, tasks: Mapping[str, simulation.Floats64]) -> Weights:
        weights: Weights = {name: leaf.expand(self.tasks, *leaf.shape) for name, leaf in self.network.leaves.items()}
        for inner in range(self.parameters.adaptation_steps):
            batch, _ = self._play(weights, tasks, inner)
            weights = {name: weight.detach().requires_grad_() for name, weight in self.adapt(weights, batch).items()}
        return weights

    def adapted_to(self, task: Mapping[str, float]) -> dict[str, torch.Tensor]:
        """The weights after the inner steps on one task, by the episodes of the first place alone.

        The others play the same task, and their episodes change nothing: a new task has `episodes` of them, no more.
        """
        count = len(self.environment.members)
        weights = self._inner_steps({name: np.full(count, value) for name, value in task.items()})
        return {name: weight[0].detach().clone() for name, weight in weights.items()}

    def nominal(self) -> dict[str, float]:
        """The task without anything drawn, at the level that is played now."""
        values = self._world.nominal()
        return {name: values[name] for name, _, _ in self._world.conditions.randomise}

    def finish(self) -> None:
        """Adapt what is exported to the nominal task, after the last meta-update."""
        weights = self.adapted_to(self.nominal())
        self._meta.copy_(self.network.vector)
        flat = torch.cat([weights[name].reshape(-1) for name in self.network.shapes])
        with torch.no_grad():
            self.network.vector.copy_(flat)


register(
    Traits(
        name="maml",
        learner=Maml,
        head="actor",
        activation=ACTIVATION,
        actions=frozenset({spaces.ActionType.CONTINUOUS}),
        meta_learned=True,
    )
)
