"""Hierarchical deep Q-learning: a meta-controller chooses landmarks, a controller goes there.

Kulkarni, Narasimhan, Saeedi & Tenenbaum (2016), arXiv 1604.06057, equations 2 and 3. With landmark g, b(s', g) = 1
where s' is at g, and the options' values learned at every step (intra-option learning, Sutton, Precup & Singh, 1999,
section 6):

    controller:  y1 = b(s', g) + gamma1 (1 - b(s', g)) alive max_a' Q1_target(s', g, a')
    meta:        y2 = r + gamma alive [ b(s', g) max_g' Q2_target(s', g') + (1 - b(s', g)) Q2_target(s', g) ]
    L = E[ (Q1(s, g, a) - y1)^2 + (Q2(s, g) - y2)^2 ]

Deviations, all deliberate:
- The paper keeps whole segments for the meta-controller; learning within options needs one buffer of plain steps only.
- The controller has a discount of its own (gamma1): ways to a landmark are short, a low one tells them apart better.
- A landmark is given up after `option_steps`, which the targets do not know.
- The exported policy has no memory: it chooses the landmark again at each step, which changes nothing where the
  meta-controller's preference is steady.
- Environments say what their landmarks are (`landmarks`, `reached`); none are discovered.
- Adam, linear schedules and batches over all ranks as in dqn.py. Gradients by autograd.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment, errors, randomness, spaces, wrappers
from learnloop_trainer import floating_point, replay
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion, Traits, picked, register
from learnloop_trainer.algorithms.logged_batches import CHUNK, ReplayLearner
from learnloop_trainer.neural.networks import Floats, Network, dense, forward, forward_numpy
from learnloop_trainer.neural.schedules import explored

ACTIVATION = "relu"
Leaves = Mapping[str, torch.Tensor]


def init(
    parameters: Parameters,
    observations: int,
    landmarks: int,
    actions: int,
    seed: int,
    device: torch.device,
) -> Network:
    """Fresh networks: `meta` values landmarks, `q` values actions on the way to one."""
    sizes = [*parameters.hidden]
    arrays = dense("meta", [observations, *sizes, landmarks], 1.0, seed, 0)
    return Network(arrays | dense("q", [observations + landmarks, *sizes, actions], 1.0, seed, 1), device)


def choose(
    parameters: Mapping[str, Floats], observation: spaces.Observations, explore: float, draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Epsilon-greedy landmarks [n]; draws [2, n]."""
    values = forward_numpy(parameters, "meta", ACTIVATION, observation)
    random = (draws[1] * values.shape[1]).astype(np.int64)
    return np.asarray(np.where(draws[0] < explore, random, values.argmax(axis=1)), dtype=np.int64)


def act(
    parameters: Mapping[str, Floats],
    observation: spaces.Observations,
    goal: NDArray[np.int64],
    landmarks: int,
    explore: float,
    draws: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Epsilon-greedy actions [n] on the way to landmarks `goal` [n]; draws [2, n]."""
    inputs = np.concatenate((observation, np.eye(landmarks, dtype=np.float32)[goal]), axis=1)
    values = forward_numpy(parameters, "q", ACTIVATION, inputs)
    random = (draws[1] * values.shape[1]).astype(np.int64)
    return np.asarray(np.where(draws[0] < explore, random, values.argmax(axis=1)), dtype=np.int64)


def greedy(leaves: Leaves, observation: torch.Tensor) -> torch.Tensor:
    """Values of actions [n, actions] on the way to the landmark preferred: what is exported."""
    meta = forward(leaves, "meta", ACTIVATION, observation)
    goal = one_hot(meta.argmax(1), meta.shape[1]).to(observation.dtype)
    return forward(leaves, "q", ACTIVATION, torch.cat((observation, goal), 1))


def loss(
    leaves: Leaves, target: Leaves, batch: replay.Transitions, at: torch.Tensor, parameters: Parameters
) -> torch.Tensor:
    """The sum of both squared errors.

    `batch.action` [n, 2] holds action and landmark, `at` [n] the landmark at s' or -1.
    """
    action, goal = batch.action.long().unbind(1)
    landmarks = target["meta.0.weight"].new_zeros(len(goal), leaves_out(target, "meta"))
    heading = landmarks.scatter(1, goal.unsqueeze(1), 1.0)
    there = (at == goal).to(batch.reward.dtype)
    with torch.no_grad():
        onward = forward(target, "q", ACTIVATION, torch.cat((batch.successor, heading), 1)).amax(1)
        goal_action = there + parameters.controller_discount * (1 - there) * batch.alive * onward
        values = forward(target, "meta", ACTIVATION, batch.successor)
        at_goal = values.gather(1, goal.unsqueeze(1)).squeeze(1)
        goal_meta = batch.reward + parameters.discount * batch.alive * torch.where(at == goal, values.amax(1), at_goal)
    values = forward(leaves, "q", ACTIVATION, torch.cat((batch.observation, heading), 1))
    meta = forward(leaves, "meta", ACTIVATION, batch.observation)
    error = values.gather(1, action.unsqueeze(1)).squeeze(1) - goal_action
    meta_error = meta.gather(1, goal.unsqueeze(1)).squeeze(1) - goal_meta
    return error.square().sum() + meta_error.square().sum()


def leaves_out(leaves: Leaves, name: str) -> int:
    last = max(int(key.split(".")[1]) for key in leaves if key.startswith(f"{name}."))
    return int(leaves[f"{name}.{last}.bias"].shape[0])


class HierarchicalDqn(ReplayLearner):
    """Two-level DQN on this rank's environments."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        """Raises ConfigError for an environment without landmarks."""
        self._world = wrappers.innermost(environment)
        if not hasattr(self._world, "landmarks") or not hasattr(self._world, "reached"):
            name, fix = (
                type(self._world).__name__,
                "choose one that has them, or set algorithm to dqn",
            )
            raise errors.ConfigError("spec.data.environment", name, "has no landmarks for a meta-controller", fix)
        self.landmarks = int(self._world.landmarks)
        sizes = (environment.observations, self.landmarks, environment.actions)
        network = init(parameters, *sizes, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network, dimensions=2)
        self._draws = randomness.Draws((2, parameters.batch_size), randomness.Purpose.REPLAY, occasion.seed)
        count = len(environment.members)
        self.goal, self.left = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)

    def iterate(self, observation: spaces.Observations) -> tuple[spaces.Observations, list[Experience]]:
        """CHUNK vector steps with the updates that are due between them."""
        environment, parameters = self.environment, self.parameters
        draws = randomness.uniforms(
            randomness.Purpose.EXPLORE,
            self.occasion.seed,
            self.step // self.occasion.environments + np.arange(CHUNK)[:, None, None],
            np.arange(4)[None, :, None],
            np.asarray(environment.members)[None, None, :],
        )
        rewards = np.empty((CHUNK, len(environment.members)), dtype=np.float32)
        ended = np.empty(rewards.shape, dtype=np.bool_)
        for t in range(CHUNK):
            done = self.step / max(1.0, parameters.exploration_fraction * self.occasion.total_steps)
            explore = explored(parameters.epsilon_start, parameters.epsilon_end, done, warm=self.network.warm)
            actor = self.network.actor()
            fresh = choose(actor, observation, explore, draws[t, :2])
            self.goal = np.where(self.left == 0, fresh, self.goal)
            self.left = np.where(self.left == 0, parameters.option_steps, self.left) - 1
            action = act(actor, observation, self.goal, self.landmarks, explore, draws[t, 2:])
            step = environment.step(action)
            self.replay.add(observation, np.stack((action, self.goal), axis=1), step)
            rewards[t], ended[t] = step.reward, step.terminated | step.truncated
            self.left[ended[t] | (self._world.reached(step.successor) == self.goal)] = 0
            observation = step.observation
            self._learn()
            self.step += self.occasion.environments
        floating_point.require_finite(self.step, observation=observation, reward=rewards)
        floating_point.require_learned(self.step, self.network.vector.sum(), *self.replay.learned_from())
        return observation, [Experience(rewards, ended)]

    def _learn(self) -> None:
        parameters = self.parameters
        for _ in range(self.updates_due()):
            places = self.places(self._draws.at(self.network.updates))
            batch = self.replay.pick(*places, self.network.vector.device)
            at = torch.from_numpy(self._world.reached(batch.successor.cpu().numpy())).to(batch.reward.device)
            error = loss(self.network.leaves, self.network.views(self.targets[""]), batch, at, parameters)
            torch.autograd.backward(error / parameters.batch_size)
            self.apply(self.network)
            self.follow()

    def own(self) -> Arrays:
        return super().own() | {"goal": self.goal.copy(), "left": self.left.copy()}

    def restore(self, shared: Arrays, own: Arrays) -> None:
        super().restore(shared, own)
        self.goal, self.left = (np.array(own[name], dtype=np.int64) for name in ("goal", "left"))


def towards_goal(learner: HierarchicalDqn, observation: spaces.Observations) -> Floats:
    """The controller's values of every action on the way to the landmark that each environment is heading for."""
    heading = np.eye(learner.landmarks, dtype=np.float32)[learner.goal]
    return forward_numpy(learner.network.actor(), "q", ACTIVATION, np.concatenate((observation, heading), axis=1))


def on_the_way(learner: HierarchicalDqn, observation: spaces.Observations, taken: spaces.Actions) -> Floats:
    return picked(towards_goal(learner, observation), taken)


register(
    Traits(
        name="hierarchical-dqn",
        learner=HierarchicalDqn,
        head="q",
        activation=ACTIVATION,
        actions=frozenset({spaces.ActionType.DISCRETE}),
        chooser="meta",
        outputs=greedy,
        q_value=on_the_way,
        preferences=towards_goal,
    )
)
