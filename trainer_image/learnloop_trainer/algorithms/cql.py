"""Conservative Q-learning from a log, for discrete actions.

Kumar, Zhou, Tucker & Levine (2020), arXiv 2006.04779, equation 4 with the entropy as regulariser, CQL(H), on the double
targets of van Hasselt, Guez & Silver (2016), arXiv 1509.06461:

    L = alpha E[ log sum_a' exp Q(s, a') - Q(s, a) ] + E[ (Q(s, a) - y)^2 ] / 2
    y = r + gamma (1 - terminated) Q_target(s', argmax_a' Q(s', a'))

Without the first term a learner that takes no step believes what it imagines of actions that were never tried.

Deviations, all deliberate:
- `totalSteps` counts logged steps learned from; an environment, where there is one, is played in evaluation only.
- The target follows by a small share at each update, not by copies.
- Adam with a linearly falling step size and a clipped gradient norm; the gradient is written out by hand (`slope`).
- The last step of an episode that was cut off is left out: what came then was not logged.
"""

from collections.abc import Mapping

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment
from learnloop_environments.spaces import ActionType
from learnloop_trainer.algorithms import base, logged_batches
from learnloop_trainer.neural.networks import Network, Stack, dense, forward
from learnloop_trainer.replay import Transitions

ACTIVATION = "relu"


def init(parameters: Parameters, observations: int, actions: int, seed: int, device: torch.device) -> Network:
    return Network(dense("q", [observations, *parameters.hidden, actions], 1.0, seed, 0), device)


def loss(
    leaves: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    batch: Transitions,
    parameters: Parameters,
) -> torch.Tensor:
    """The loss summed over the transitions; what `slope` differentiates, here for the reader and the tests."""
    with torch.no_grad():
        best = forward(leaves, "q", ACTIVATION, batch.successor).argmax(dim=1, keepdim=True)
        future = forward(target, "q", ACTIVATION, batch.successor).gather(1, best).squeeze(1)
        goal = batch.reward + parameters.discount * batch.alive * future
    values = forward(leaves, "q", ACTIVATION, batch.observation)
    taken = values.gather(1, batch.action.unsqueeze(1)).squeeze(1)
    held_down = (torch.logsumexp(values, 1) - taken).sum()
    return parameters.conservatism * held_down + (taken - goal).square().sum() / 2


def slope(
    values: torch.Tensor, goal: torch.Tensor, action: torch.Tensor, conservatism: float, out: torch.Tensor
) -> None:
    """Gradient of the summed loss by the network's outputs `values` [n, actions]; goal [n, 1], action int64 [n, 1]."""
    torch.softmax(values, 1, out=out)
    out.mul_(conservatism)
    out.scatter_add_(1, action, values.gather(1, action).sub_(goal).sub_(conservatism))


class Cql(logged_batches.LogLearner):
    """Conservative Q-learning on this rank's part of every batch."""

    UPDATES = 32

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network, {}, "")
        layers = range(len(parameters.hidden) + 1)
        self._online = Stack(network, ["q"], ACTIVATION, layers)
        self._target = Stack(network, ["q"], ACTIVATION, layers, vector=self.target)

    def gradient(self, batch: Transitions, count: int) -> None:
        """Put the gradient of `loss / count` in the network's flat gradient. Within torch.inference_mode."""
        size, action = len(batch.observation), batch.action.unsqueeze(1)
        values, following = self._online.forward(batch.observation, batch.successor)[0].split_with_sizes((size, size))
        best = following.max(1, keepdim=True).indices
        future = self._target.through(self._online.entered[..., size:])[0].gather(1, best)
        discount = self.parameters.discount
        goal = torch.addcmul(batch.reward.unsqueeze(1), batch.alive.unsqueeze(1), future, value=discount)
        incoming = self._online.incoming(size)[0]
        slope(values, goal, action, self.parameters.conservatism, incoming)
        incoming.div_(count)
        self._online.backward(size)

    def _learn(self, batch: Transitions) -> None:
        self.gradient(batch, self.parameters.batch_size)
        self._apply(self.network)


base.register(
    base.Traits(
        name="cql",
        learner=Cql,
        head="q",
        activation=ACTIVATION,
        actions=frozenset({ActionType.DISCRETE}),
        recorded=True,
    )
)
