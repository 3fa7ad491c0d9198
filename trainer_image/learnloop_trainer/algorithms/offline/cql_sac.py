"""Conservative soft actor-critic from a log, for continuous actions.

Kumar, Zhou, Tucker & Levine (2020), arXiv 2006.04779, equation 4 with the entropy as regulariser, CQL(H), as a
soft actor-critic learns (appendix F; see sac for its equations):

    L(Q_i) = alpha E[ log sum_a' exp Q_i(s, a') - Q_i(s, a) ] + E[ (Q_i(s, a) - y)^2 ] / 2
    y = r + gamma (1 - terminated) min_i Q_target_i(s', a'),    a' ~ pi(.|s')

The integral over all actions is estimated from SAMPLES uniform actions and SAMPLES of the policy's, each divided by
how likely it was to be drawn: log sum exp(Q_i(s, a_j) - log q(a_j)).

Deviations, all deliberate:
- Targets have no entropy bonus, as in the authors' code. That code also draws from the policy at the successor, whose
  actions say nothing about this state; the paper's appendix does not.
- alpha is `conservatism`, fixed: no Lagrange multiplier keeps the gap at a wanted size.
- Adam with a falling step size and a clipped gradient norm, the same for all networks; gradients are written out by
  hand. The tests compare with autograd.
- `totalSteps` counts logged steps learned from; an environment, where there is one, is played in evaluation only.
- The last step of an episode that was cut off is left out: what came then was not logged.
"""

import math

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment
from learnloop_environments.base import ActionType
from learnloop_environments.randomness import Draws, Purpose
from learnloop_trainer.algorithms import sac
from learnloop_trainer.algorithms.base import Occasion, Traits, register
from learnloop_trainer.algorithms.replaying import LogLearner
from learnloop_trainer.replay import Transitions

SAMPLES = 10
"""Uniform actions, and as many of the policy's, by which values of all actions are summed; as the authors have it."""


def slope(values: torch.Tensor, goal: torch.Tensor, likely: torch.Tensor, conservatism: float) -> torch.Tensor:
    """Gradient of the summed loss by the critics' values [2, n (1 + k), 1] of the logged actions and k others.

    goal [n]; likely [k, n]: log-densities by which the others were drawn.
    """
    size = len(goal)
    logged, others = values[:, :size, 0], values[:, size:, 0].reshape(-1, *likely.shape)
    held_down = torch.softmax(others - likely, 1).mul_(conservatism)
    return torch.cat(((logged - goal).sub_(conservatism), held_down.flatten(1)), 1).unsqueeze(2)


class CqlSac(LogLearner):
    """Conservative soft actor-critic on this rank's part of every batch."""

    UPDATES = 16

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        """A fresh learner at step 0; the environment has continuous actions."""
        dimensions = environment.actions
        networks = sac.init(parameters, environment.observations, dimensions, occasion.seed, device)
        policy, self.critics, self.temperature = networks
        others = {"critics": self.critics, "temperature": self.temperature}
        super().__init__(parameters, environment, occasion, policy, others, "critics")
        self._dimensions = dimensions
        self._gradients = sac.SacUpdate(networks, self.target, parameters, occasion)
        size = parameters.batch_size
        self._normal = Draws((2 + SAMPLES, size, dimensions), Purpose.NOISE, occasion.seed, normal=True)
        self._uniform = Draws((SAMPLES, size, dimensions), Purpose.EXPLORE, occasion.seed)

    def by_critics(self, batch: Transitions, goal: torch.Tensor, other: torch.Tensor, likely: torch.Tensor) -> None:
        """Gradient of the critics' loss; other [k, n, dimensions]: actions drawn with log-density likely [k, n]."""
        rows = batch.observation.expand(len(other), *batch.observation.shape).flatten(0, 1)
        observation, done = torch.cat((batch.observation, rows)), torch.cat((batch.action, other.flatten(0, 1)))
        critics = self._gradients.critics
        value = critics.forward(torch.cat((observation, done), 1))
        incoming = critics.incoming(len(observation))
        incoming.copy_(slope(value, goal, likely, self.parameters.conservatism)).div_(self.parameters.batch_size)
        critics.backward(len(observation))

    def drawn(self, noise: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [2 k, n, dimensions] of the observations that were sampled last, and their log-densities [2 k, n]."""
        own, density = self._gradients.policy.again(noise)
        anywhere = torch.full_like(density, -self._dimensions * math.log(2.0))
        return torch.cat((uniform.mul(2.0).sub_(1.0), own)), torch.cat((anywhere, density))

    def _learn(self, batch: Transitions) -> None:
        update, number, count = self._gradients, self.critics.updates, self.parameters.batch_size
        normal, uniform = self._mine(self._normal, number), self._mine(self._uniform, number)
        scale = self.temperature.vector.exp()
        action, density = update.sample(batch, normal[:2])
        goal = update.goal(batch, action[1], density[1], torch.zeros_like(scale))
        other, likely = self.drawn(normal[2:], uniform)
        self.by_critics(batch, goal, other, likely)
        self._apply(self.critics)
        if not self.held:
            update.by_policy(batch, action[0], scale, count)
            self._apply(self.network)
            update.by_temperature(density[0], self._dimensions, count)
            self._apply(self.temperature)

    def _mine(self, draws: Draws, number: int) -> torch.Tensor:
        share = self.occasion.group.place.share(self.parameters.batch_size)
        noise = draws.at(number)[:, share.start : share.stop]
        return torch.from_numpy(noise.astype("float32")).to(self.network.vector.device)


register(
    Traits(
        name="cql-sac",
        learner=CqlSac,
        head="actor",
        activation=sac.ACTIVATION,
        actions=frozenset({ActionType.CONTINUOUS}),
        recorded=True,
        deviation=(None, *sac.LOG_DEVIATION),
        q_value=sac.least_critic,
    )
)
