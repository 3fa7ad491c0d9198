"""Conservative Q-learning from a log, for discrete actions.

Kumar, Zhou, Tucker & Levine (2020), arXiv 2006.04779, equation 4 with the entropy as regulariser, CQL(H), on the double
targets of van Hasselt, Guez & Silver (2016), arXiv 1509.06461:

    L = alpha E[ log sum_a' exp Q(s, a') - Q(s, a) ] + E[ (Q(s, a) - y)^2 ] / 2
    y = r + gamma (1 - terminated) Q_target(s', argmax_a' Q(s', a'))

Without the first term a learner that takes no step believes what it imagines of actions that nobody tried.

Deviations, all deliberate:
- `totalSteps` counts logged steps learned from; an environment, where there is one, is played in evaluation only.
- The target follows by a small share at each update, not by copies.
- Adam with a linearly falling step size and a clipped gradient norm; the gradient is written out by hand (`slope`).
- The last step of an episode that was cut off is left out: nobody logged what came then.
"""

from collections.abc import Mapping

import numpy as np
import torch

from learnloop_api.kinds.training.offline_algorithms import CqlParameters
from learnloop_environments import VectorEnvironment
from learnloop_environments.action_spaces import ActionType
from learnloop_environments.base import Observations
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion
from learnloop_trainer.algorithms.logged_transitions import LoggedTransitions
from learnloop_trainer.algorithms.traits import Traits, register
from learnloop_trainer.floating_point import require_finite
from learnloop_trainer.neural.dense_networks import Network, dense, forward
from learnloop_trainer.neural.parallel_perceptrons import Stack
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.replay import Transitions

ACTIVATION = "relu"
UPDATES = 32  # per call of `iterate`


def init(parameters: CqlParameters, observations: int, actions: int, seed: int, device: torch.device) -> Network:
    """A fresh Q-network."""
    return Network(dense("q", [observations, *parameters.hidden, actions], 1.0, seed, 0), device)


def loss(
    leaves: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    batch: Transitions,
    parameters: CqlParameters,
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


class Cql:
    """Conservative Q-learning on this rank's part of every batch."""

    def __init__(
        self, parameters: CqlParameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        """A fresh learner at step 0; the recording is fetched by the first `iterate`, or restored."""
        self.parameters, self.occasion, self.environment = parameters, occasion, environment
        self.network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        self.target = self.network.vector.clone()
        layers = range(len(parameters.hidden) + 1)
        self._online = Stack(self.network, ["q"], ACTIVATION, layers)
        self._target = Stack(self.network, ["q"], ACTIVATION, layers, vector=self.target)
        self._log = LoggedTransitions(occasion, parameters.batch_size)
        self.step = 0

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """See Learner.iterate: UPDATES updates, and nothing happens in the environment."""
        self._log.fetch(self.network.vector.device)
        with torch.inference_mode():
            for _ in range(UPDATES):
                self._update(self._log.batch(self.network.updates))
                self.step += self.parameters.batch_size
        require_finite(self.step, loss=self.network.vector.sum().cpu().numpy())
        return observation, []

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

    def _update(self, batch: Transitions) -> None:
        network, parameters = self.network, self.parameters
        self.gradient(batch, parameters.batch_size)
        self.occasion.group.add_up(network.gradient)
        rate = step_size(parameters, parameters.learning_rate, self.step / self.occasion.total_steps)
        network.adam(rate, parameters.max_gradient_norm, clear=False)  # the next gradient replaces this one
        self.target.lerp_(network.vector, parameters.target_rate)

    def shared(self) -> Arrays:
        """See Learner.shared."""
        rest: Arrays = {"target": self.target.cpu().numpy().copy(), "step": np.asarray([self.step], dtype=np.int64)}
        return self.network.state() | rest | self._log.state()

    def own(self) -> Arrays:
        """See Learner.own: there is nothing."""
        return {}

    def restore(self, shared: Arrays, own: Arrays) -> None:
        """See Learner.restore."""
        del own
        self.network.restore(shared)
        self.target.copy_(torch.from_numpy(np.array(shared["target"], dtype=np.float32)))
        self.step = int(shared["step"][0])
        self._log.restore(shared, self.network.vector.device)


register(
    Traits(
        name="cql",
        parameters=CqlParameters,
        learner=Cql,
        head="q",
        activation=ACTIVATION,
        actions=frozenset({ActionType.DISCRETE}),
        recorded=True,
    )
)
