"""Independent deep Q-learning for teams: what the specification calls IQL.

Tan (1993), "Multi-agent reinforcement learning: independent vs. cooperative agents"; Tampuu et al. (2017),
arXiv 1511.08779. Every agent i learns a value of its own observation and action, the others are part of its world:

    y_i = r_i + gamma (1 - terminated) Q_target(o_i', argmax_a Q(o_i', a)),    L = E[ sum_i (Q(o_i, a_i) - y_i)^2 / k ]

Not implicit Q-learning (arXiv 2110.06169), which has the same three letters.

Deviations, all deliberate: agents share parameters (see logged_batches.py), targets are double, and the rest is as in
dqn.py, whose gradient is used as it is.
"""

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.spaces import VectorEnvironment
from learnloop_trainer.algorithms import base, dqn, logged_batches
from learnloop_trainer.replay import Transitions


class IndependentDqn(logged_batches.DiscreteTeam):
    """Independent DQN on this rank's teams."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        network = dqn.init(parameters, environment.observations, environment.actions, occasion.seed, device)
        super().__init__(parameters, environment, occasion, network)
        layers = range(len(parameters.hidden) + 1)
        self._gradients = dqn.DqnGradients(network, self.targets[""], parameters.discount, layers)

    def learn(self, batch: Transitions, count: int) -> None:
        with torch.inference_mode():
            alone = Transitions(
                self.by_agent(batch.observation).flatten(0, 1),
                self.by_agent(batch.successor).flatten(0, 1),
                batch.action.reshape(-1).long(),
                batch.reward.reshape(-1),
                batch.alive.repeat_interleave(self.agents),
            )
            self._gradients.compute(alone, count * self.agents)
            self.apply(self.network)
            self.follow()


base.register_q_learner("independent-dqn", IndependentDqn, dqn.ACTIVATION, team=True)
