"""A model of what a policy's actions are worth, fitted to episodes of other policies.

Fitted Q evaluation (Le, Voloshin & Yue, 2019, arXiv 1903.08738, algorithm 3) by gradient steps on a target that follows
slowly: Q(s, a) <- r + gamma sum_a' pi(a'|s') Q(s', a'). An episode's end, by the task or by a limit, is worth nothing:
what is estimated is the return of episodes as they are logged.

The network learns what is to be added to the mean of the log at the same step of an episode. So its errors are in
proportion to what differs between policies: where nothing does, as with the same reward at every step of episodes that
are all as long, the model is right to the last digit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.randomness import Purpose, generator
from learnloop_environments.spaces import ActionSpace, Observations
from learnloop_trainer.neural.networks import Network, dense, forward
from learnloop_trainer.recordings import Mixture, Recording, Target

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """Steps of whole episodes, one episode after another; leading axis [steps]."""

    recording: Recording
    episode: NDArray[np.int64]  # the number of a step's episode
    age: NDArray[np.int64]  # steps of the episode before it

    @classmethod
    def of(cls, recording: Recording) -> "LoggedSteps":
        """Every piece that `last` ends is an episode from its beginning."""
        ends = np.flatnonzero(recording.last)
        begins = np.concatenate(([0], ends[:-1] + 1))
        count = ends - begins + 1
        episode = np.repeat(np.arange(len(ends)), count)
        return cls(recording, episode, np.arange(len(recording.last)) - np.repeat(begins, count))

    @property
    def episodes(self) -> int:
        return int(self.recording.last.sum())

    @property
    def longest(self) -> int:
        return int(self.age.max()) + 1

    def table(self, values: NDArray[Any], absent: float) -> Floats:
        """Numbers [steps] as [episodes, longest], with `absent` after an episode's end."""
        rectangle = np.full((self.episodes, self.longest), absent)
        rectangle[self.episode, self.age] = values
        return rectangle

    def mean_to_go(self, discount: float) -> Floats:
        """Mean reward to come of the logged episodes that were under way at each step, [longest]."""
        under_way = self.table(np.ones(len(self.age)), 0.0)
        return np.asarray(self.returns_to_go(discount).sum(axis=0) / under_way.sum(axis=0))

    def returns_to_go(self, discount: float) -> Floats:
        """Discounted rewards from each step on to the episode's end [episodes, longest]; 0 after it."""
        reward = self.table(self.recording.reward, 0.0)
        returns = np.zeros_like(reward)
        running = np.zeros(len(reward))
        for age in range(reward.shape[1] - 1, -1, -1):
            running = reward[:, age] + discount * running
            returns[:, age] = running
        return returns


HIDDEN, RATE, TARGET_RATE, BATCH, MOST_STEPS = [64, 64], 1e-3, 0.01, 256, 50_000
ROWS = 65_536  # judged in one batch


@dataclass(slots=True)
class FittedQ:
    """Values of a policy's actions, as `fit` found them."""

    network: Network
    space: ActionSpace
    centre: NDArray[np.float32]
    scale: NDArray[np.float32]
    worth: float  # of 1 at the network's output
    mean: Floats  # of the log from each step of an episode on, [longest]

    def taken(self, observation: Observations, action: NDArray[Any], age: NDArray[np.int64]) -> Floats:
        """Q of one action [n] for each observation, seen after `age` steps of an episode."""
        return self.logged(age) + self._values(observation, action[:, None])[:, 0]

    def value(self, observation: Observations, mixture: Mixture, age: NDArray[np.int64]) -> Floats:
        """V: the mean of Q over what the policy does, [n]."""
        more = (self._values(observation, mixture.action) * mixture.weight).sum(axis=1)
        return np.asarray(self.logged(age) + more)

    def logged(self, age: NDArray[np.int64]) -> Floats:
        """The log's mean reward to come after `age` steps; 0 where no episode was as long."""
        return np.asarray(np.append(self.mean, 0.0)[np.minimum(age, len(self.mean))])

    def _values(self, observation: Observations, action: NDArray[Any]) -> Floats:
        """Additions to the mean for actions [n, k], [n, k]."""
        rows = (slice(at, at + ROWS) for at in range(0, len(observation), ROWS))
        parts = [
            _judged(self.network.leaves, self._scaled(observation[at]), _network_action(self.space, action[at]))
            for at in rows
        ]
        return np.concatenate([part.detach().cpu().numpy() for part in parts]).astype(np.float64) * self.worth

    def _scaled(self, observation: Observations) -> torch.Tensor:
        return torch.from_numpy((observation - self.centre) / self.scale).to(self.network.vector.device)


def fit(
    steps: LoggedSteps,
    policy: Target,
    space: ActionSpace,
    discount: float,
    updates: int,
    seed: int,
    device: torch.device,
) -> FittedQ:
    """The model after `updates` updates; the same log and seed give the same one."""
    recording, random = steps.recording, generator(Purpose.OFF_POLICY, seed)
    rows = np.arange(len(recording.reward))
    if len(rows) > MOST_STEPS:
        rows = np.sort(random.choice(rows, MOST_STEPS, replace=False))
    after = np.roll(recording.observation, -1, axis=0)[rows]
    follows = ~recording.last[rows]
    before = recording.observation[rows]
    mean = steps.mean_to_go(discount)
    wide = float(np.abs((steps.returns_to_go(discount) - mean)[steps.episode, steps.age]).max())
    width = before.shape[1] + (space.actions if space.bounds is None else _width(space))
    outputs = space.actions if space.bounds is None else 1
    inputs = before.shape[1] if space.bounds is None else width
    network = Network(dense("q", [inputs, *HIDDEN, outputs], 0.1, seed, 7), device)
    centre, scale = before.mean(axis=0), np.maximum(before.std(axis=0), 1e-3)
    fitted = FittedQ(network, space, centre.astype(np.float32), scale.astype(np.float32), wide, mean)
    target = network.vector.clone()
    mixture = policy.mixture(after)
    observation, successor = fitted._scaled(before), fitted._scaled(after)
    action, following = (
        _network_action(space, recording_action(recording.action[rows], space)[:, None]),
        _network_action(space, mixture.action),
    )
    weight = torch.from_numpy(mixture.weight.astype(np.float32)).to(device)
    age = steps.age[rows]
    surplus = recording.reward[rows] + discount * follows * fitted.logged(age + 1) - fitted.logged(age)
    reward = torch.from_numpy((surplus / (wide or 1.0)).astype(np.float32)).to(device)
    alive = torch.from_numpy(follows.astype(np.float32)).to(device)
    going_on = bool(follows.any())
    for update in range(updates):
        pick = torch.from_numpy(random.integers(0, len(rows), BATCH)).to(device)
        goal = reward[pick]
        if going_on:
            with torch.no_grad():
                then = (_judged(network.views(target), successor[pick], following[pick]) * weight[pick]).sum(1)
                goal = goal + discount * alive[pick] * then
        error = _judged(network.leaves, observation[pick], action[pick])[:, 0] - goal
        torch.autograd.backward(error.square().mean() / 2)
        network.adam(RATE * (1.0 - update / updates), 10.0)
        target.lerp_(network.vector, TARGET_RATE)
    return fitted


def recording_action(action: NDArray[Any], space: ActionSpace) -> NDArray[Any]:
    """Recorded actions, whose numbers are within [-1, 1], as the environment takes them."""
    return space.denormalise(action)


def _width(space: ActionSpace) -> int:
    choices = space.bounds.choices if space.bounds is not None else 0
    return space.actions + (choices - 1 if choices else 0)


def _network_action(space: ActionSpace, action: NDArray[Any]) -> torch.Tensor:
    """Actions [n, k] as the network reads them: numbers of the choices [n, k], or [n, k, width] within [-1, 1]."""
    if space.bounds is None:
        return torch.from_numpy(np.ascontiguousarray(action))
    n, k = action.shape[:2]
    flat = torch.from_numpy(np.asarray(space.normalise(action.reshape(n * k, -1)), dtype=np.float32))
    if space.bounds.choices:
        chosen = torch.nn.functional.one_hot(flat[:, 0].long(), space.bounds.choices).float()
        flat = torch.cat((chosen, flat[:, 1:]), 1)
    return flat.reshape(n, k, -1)


def _judged(leaves: Any, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Q [n, k]."""
    if action.dim() == 2:
        return forward(leaves, "q", "relu", observation).gather(1, action)
    n, k, _ = action.shape
    pairs = torch.cat((observation.unsqueeze(1).expand(n, k, -1), action), 2).reshape(n * k, -1)
    return forward(leaves, "q", "relu", pairs).reshape(n, k)
