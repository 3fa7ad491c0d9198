"""Curiosity: an intrinsic reward for what could not be predicted.

Pathak, Agrawal, Efros & Darrell (2017), arXiv 1705.05363, equations 2 to 7, with features phi(s):

    inverse model   a^ = g(phi(s), phi(s')),    L_I = cross-entropy(a^, a)
    forward model   phi^(s') = f(phi(s), a),    L_F = |phi^(s') - phi(s')|^2 / 2
    reward          r_i = eta L_F,              L = (1 - beta) L_I + beta L_F

The inverse model keeps features to what the agent can influence, so noise, which it cannot, earns no reward.

Deviations, all deliberate: DQN learns from it instead of A3C; the reward of a replayed transition is computed when it
is replayed, with the models as they are then, and bounded by 1; the forward model does not change the features (its
targets and inputs are constants to it), or features could collapse to make prediction easy.
"""

import torch
from torch.nn.functional import cross_entropy, one_hot

from learnloop_api.kinds.training.algorithms import Curiosity
from learnloop_trainer.algorithms.base import Arrays, Occasion
from learnloop_trainer.neural.networks import Network, dense, forward
from learnloop_trainer.replay import Transitions

ACTIVATION = "relu"
BETA = 0.2  # weight of the forward model's loss, as in the paper


def init(settings: Curiosity, observations: int, actions: int, seed: int, device: torch.device) -> Network:
    width, hidden = settings.features, settings.hidden
    arrays = dense("phi", [observations, *hidden, width], 1.0, seed, 10)
    arrays |= dense("inverse", [2 * width, *hidden, actions], 1.0, seed, 11)
    return Network(arrays | dense("forward", [width + actions, *hidden, width], 1.0, seed, 12), device)


class Icm:
    """The intrinsic curiosity module of a learner with discrete actions."""

    def __init__(
        self, settings: Curiosity, observations: int, actions: int, occasion: Occasion, device: torch.device
    ) -> None:
        self._settings, self._actions, self._occasion = settings, actions, occasion
        self.network = init(settings, observations, actions, occasion.seed, device)

    def _surprise(self, batch: Transitions, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """L_F of each transition [n]; features are constants here."""
        taken = one_hot(batch.action, self._actions).to(before.dtype)
        predicted = forward(self.network.leaves, "forward", ACTIVATION, torch.cat((before.detach(), taken), 1))
        return (predicted - after.detach()).square().sum(1) / 2

    def reward(self, batch: Transitions) -> torch.Tensor:
        """Intrinsic rewards [n] from 0 to 1."""
        with torch.no_grad():
            before, after = (
                forward(self.network.leaves, "phi", ACTIVATION, x) for x in (batch.observation, batch.successor)
            )
            return (self._settings.scale * self._surprise(batch, before, after)).clamp(max=1.0)

    def loss(self, batch: Transitions) -> torch.Tensor:
        """The sum of both models' losses over the transitions."""
        before, after = (
            forward(self.network.leaves, "phi", ACTIVATION, x) for x in (batch.observation, batch.successor)
        )
        guess = forward(self.network.leaves, "inverse", ACTIVATION, torch.cat((before, after), 1))
        inverse = cross_entropy(guess, batch.action, reduction="sum")
        return (1 - BETA) * inverse + BETA * self._surprise(batch, before, after).sum()

    def update(self, batch: Transitions, count: int) -> None:
        """One step of both models; `batch` is this rank's part of `count` transitions."""
        with torch.inference_mode(False), torch.enable_grad():
            # Tensors made in inference mode cannot be saved for backward: take copies.
            copies = (x.clone() for x in (batch.observation, batch.successor, batch.action, batch.reward, batch.alive))
            torch.autograd.backward(self.loss(Transitions(*copies)) / count)
        self._occasion.group.add_up(self.network.gradient)
        self.network.adam(self._settings.learning_rate, 10.0)

    def state(self) -> Arrays:
        return {f"icm:{name}": array for name, array in self.network.state().items()}

    def restore(self, state: Arrays) -> None:
        """Take up a saved state; raises KeyError or ValueError when it does not fit."""
        self.network.restore({k.removeprefix("icm:"): array for k, array in state.items() if k.startswith("icm:")})
