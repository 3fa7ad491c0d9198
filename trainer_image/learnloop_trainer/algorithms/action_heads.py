"""Distributions over actions, given by a policy network's outputs: the one that fits the environment's action space.

- `Categorical`: logits of the choices; sampled by the Gumbel trick.
- `Gaussian`: means before tanh, with deviations that are parameters of their own and do not depend on the state
  (Schulman et al., 2015, arXiv 1502.05477, appendix D). Kept, and judged, before tanh: u ~ N(mu, sigma).
- `Hybrid`: both, independent of each other given the observation (Fan et al., 2019, arXiv 1903.01344).

Each knows its log-probability, its entropy, and its backward pass by hand; the tests compare with autograd.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments import VectorEnvironment, randomness, spaces
from learnloop_trainer.neural.networks import Floats, Network

DEVIATION = "log_deviation"
LEAST, MOST = -5.0, 2.0  # log sigma stays within; a policy that has become certain must not divide by nothing
Leaves = Mapping[str, torch.Tensor]


class Head(Protocol):
    """A distribution over actions. `taken` stands for actions as they are kept: [n] or [n, numbers]."""

    outputs: int  # of the policy network

    def parameters(self) -> dict[str, Floats]:
        """Parameters besides the policy network's, at their initial values."""

    def noise(self, seed: int, steps: NDArray[Any], members: NDArray[Any]) -> NDArray[np.float32]:
        """Noise [steps, members, k] that belongs to these steps [h, 1, 1] and environments [1, n, 1]."""

    def room(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """An array for actions as they are kept, with these leading axes."""

    def draw(self, policy: Mapping[str, Floats], outputs: Floats, noise: Floats) -> NDArray[Any]:
        """Sampled actions for outputs [n, outputs]."""

    def executed(self, taken: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them."""

    def log_prob(self, leaves: Leaves, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        """Log-density [n] of actions; differentiable."""

    def entropy(self, leaves: Leaves, outputs: torch.Tensor) -> torch.Tensor:
        """[n], of what is sampled, before any tanh; differentiable."""

    def on(self, network: Network) -> "Head":
        """This head with the network's own parameters and gradients at hand, for the two below."""

    def evaluate(self, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        """As `log_prob`, remembering what `backward` needs."""

    def backward(self, pull: torch.Tensor, entropy: float, out: torch.Tensor) -> None:
        """Gradient of sum(pull * log_prob - entropy * H) by the outputs, into `out`; by own parameters, in place."""


class Categorical:
    """`choices` discrete actions."""

    def __init__(self, choices: int) -> None:
        self.outputs = choices

    def parameters(self) -> dict[str, Floats]:
        return {}

    def noise(self, seed: int, steps: NDArray[Any], members: NDArray[Any]) -> NDArray[np.float32]:
        return randomness.gumbels(
            randomness.Purpose.ACTION, seed, steps, members, np.arange(self.outputs)[None, None, :]
        )

    def room(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.empty(shape, dtype=np.int64)

    def draw(self, policy: Mapping[str, Floats], outputs: Floats, noise: Floats) -> NDArray[Any]:
        del policy
        return np.asarray((outputs + noise).argmax(axis=1))

    def executed(self, taken: NDArray[Any]) -> NDArray[Any]:
        return taken

    def log_prob(self, leaves: Leaves, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        del leaves
        return torch.log_softmax(outputs, 1).gather(1, taken.unsqueeze(1)).squeeze(1)

    def entropy(self, leaves: Leaves, outputs: torch.Tensor) -> torch.Tensor:
        del leaves
        log_probs = torch.log_softmax(outputs, 1)
        return -(log_probs.exp() * log_probs).sum(1)

    def on(self, network: Network) -> "Categorical":
        del network
        return self

    def evaluate(self, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        self._log_probs, self._taken = torch.log_softmax(outputs, 1), taken.unsqueeze(1)
        return self._log_probs.gather(1, self._taken).squeeze(1)

    def backward(self, pull: torch.Tensor, entropy: float, out: torch.Tensor) -> None:
        """With p the probabilities: pull (onehot(taken) - p) + entropy p (log p + H)."""
        pull, log_probs = pull.unsqueeze(1), self._log_probs
        probs = torch.exp(log_probs, out=out)
        negative_entropy = (probs * log_probs).sum(1, keepdim=True)
        log_probs.sub_(negative_entropy).mul_(entropy).sub_(pull)
        probs.mul_(log_probs).scatter_add_(1, self._taken, pull)


class Gaussian:
    """Numbers within bounds, through tanh."""

    def __init__(self, bounds: spaces.Bounds) -> None:
        self.outputs, self._bounds = len(bounds.low), bounds

    def parameters(self) -> dict[str, Floats]:
        return {DEVIATION: np.zeros(self.outputs, dtype=np.float32)}

    def noise(self, seed: int, steps: NDArray[Any], members: NDArray[Any]) -> NDArray[np.float32]:
        """Standard normal (Box & Muller, 1958)."""
        which = np.arange(self.outputs)[None, None, :]
        first, second = (
            randomness.uniforms(randomness.Purpose.NOISE, seed, steps, members, which, half) for half in (0, 1)
        )
        return np.asarray(np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second), dtype=np.float32)

    def room(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.empty((*shape, self.outputs), dtype=np.float32)

    def draw(self, policy: Mapping[str, Floats], outputs: Floats, noise: Floats) -> NDArray[Any]:
        return outputs + np.exp(np.clip(policy[DEVIATION], LEAST, MOST)) * noise

    def executed(self, taken: NDArray[Any]) -> NDArray[Any]:
        return self._bounds.scale(np.tanh(taken))

    def log_prob(self, leaves: Leaves, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        deviation = leaves[DEVIATION].clamp(LEAST, MOST)
        error = (taken - outputs) * torch.exp(-deviation)
        return -(0.5 * error.square() + deviation + 0.5 * math.log(2.0 * math.pi)).sum(1)

    def entropy(self, leaves: Leaves, outputs: torch.Tensor) -> torch.Tensor:
        each = leaves[DEVIATION].clamp(LEAST, MOST) + 0.5 * math.log(2.0 * math.pi * math.e)
        return each.sum().expand(len(outputs))

    def on(self, network: Network) -> "Gaussian":
        head = Gaussian(self._bounds)
        head._raw = network.views(network.vector)[DEVIATION]
        head._gradient = network.views(network.gradient)[DEVIATION]
        return head

    _raw: torch.Tensor
    _gradient: torch.Tensor

    def evaluate(self, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        deviation = self._raw.clamp(LEAST, MOST)
        self._inside, self._inverse = deviation == self._raw, torch.exp(-deviation)
        self._error = (taken - outputs).mul_(self._inverse)
        constant = deviation.add_(0.5 * math.log(2.0 * math.pi)).sum()
        return self._error.square().sum(1).mul_(-0.5).sub_(constant)

    def backward(self, pull: torch.Tensor, entropy: float, out: torch.Tensor) -> None:
        """With z = (u - mu) / sigma: by mu pull z / sigma, by log sigma pull (z^2 - 1) - entropy."""
        pull = pull.unsqueeze(1)
        torch.mul(self._error, self._inverse, out=out).mul_(pull)
        by_deviation = self._error.square_().sub_(1.0).mul_(pull).sub_(entropy).sum(0)
        self._gradient.copy_(by_deviation.mul_(self._inside))


class Hybrid:
    """A choice and numbers that go with it, kept as float32 [n, 1 + numbers]."""

    def __init__(self, bounds: spaces.Bounds) -> None:
        """`bounds.choices` of the first number; the rest are numbers."""
        rest = spaces.Bounds(bounds.low[1:], bounds.high[1:])
        self._bounds, self.choice, self.numbers = bounds, Categorical(bounds.choices), Gaussian(rest)
        self._split = bounds.choices
        self.outputs = self._split + self.numbers.outputs

    def parameters(self) -> dict[str, Floats]:
        return self.numbers.parameters()

    def noise(self, seed: int, steps: NDArray[Any], members: NDArray[Any]) -> NDArray[np.float32]:
        return np.concatenate(
            (self.choice.noise(seed, steps, members), self.numbers.noise(seed, steps, members)), axis=2
        )

    def room(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.empty((*shape, 1 + self.numbers.outputs), dtype=np.float32)

    def draw(self, policy: Mapping[str, Floats], outputs: Floats, noise: Floats) -> NDArray[Any]:
        at = self._split
        chosen = self.choice.draw(policy, outputs[:, :at], noise[:, :at])
        numbers = self.numbers.draw(policy, outputs[:, at:], noise[:, at:])
        return np.concatenate((chosen[:, None].astype(np.float32), numbers), axis=1)

    def executed(self, taken: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((taken[:, :1], self.numbers.executed(taken[:, 1:])), axis=1)

    def log_prob(self, leaves: Leaves, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        chosen = self.choice.log_prob(leaves, outputs[:, : self._split], taken[:, 0].long())
        return chosen + self.numbers.log_prob(leaves, outputs[:, self._split :], taken[:, 1:])

    def entropy(self, leaves: Leaves, outputs: torch.Tensor) -> torch.Tensor:
        chosen = self.choice.entropy(leaves, outputs[:, : self._split])
        return chosen + self.numbers.entropy(leaves, outputs[:, self._split :])

    def on(self, network: Network) -> "Hybrid":
        head = Hybrid(self._bounds)
        head.numbers = self.numbers.on(network)
        return head

    def evaluate(self, outputs: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        chosen = self.choice.evaluate(outputs[:, : self._split], taken[:, 0].long())
        return chosen.add_(self.numbers.evaluate(outputs[:, self._split :], taken[:, 1:]))

    def backward(self, pull: torch.Tensor, entropy: float, out: torch.Tensor) -> None:
        self.choice.backward(pull, entropy, out[:, : self._split])
        self.numbers.backward(pull, entropy, out[:, self._split :])


def fitting(environment: VectorEnvironment) -> Head:
    bounds = environment.bounds
    if bounds is None:
        return Categorical(environment.actions)
    return Hybrid(bounds) if bounds.choices else Gaussian(bounds)
