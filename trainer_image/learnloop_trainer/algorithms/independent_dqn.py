"""Independent deep Q-learning for teams: what the specification calls IQL.

Tan (1993), "Multi-agent reinforcement learning: independent vs. cooperative agents"; Tampuu et al. (2017),
arXiv 1511.08779. Every agent i learns a value of its own observation and action, the others are part of its world:

    y_i = r_i + gamma (1 - terminated) Q_target(o_i', argmax_a Q(o_i', a)),    L = E[ sum_i (Q(o_i, a_i) - y_i)^2 / k ]

Not implicit Q-learning (arXiv 2110.06169), which has the same three letters.

Deviations, all deliberate: agents share parameters (see team.py), targets are double, and the rest is as in dqn.py,
whose gradient is used as it is.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.action_spaces import ActionType
from learnloop_environments.base import Observations, VectorEnvironment
from learnloop_environments.randomness import Purpose, uniforms
from learnloop_trainer.algorithms import dqn
from learnloop_trainer.algorithms.base import Occasion
from learnloop_trainer.algorithms.team_replay import Team
from learnloop_trainer.algorithms.traits import Traits, head_outputs, head_values, register
from learnloop_trainer.neural.dense_networks import Network, dense, forward_numpy
from learnloop_trainer.neural.schedules import explored
from learnloop_trainer.replay import Transitions

ACTIVATION = dqn.ACTIVATION


def init(parameters: Parameters, observations: int, actions: int, seed: int, device: torch.device) -> Network:
    """A fresh Q-network that all agents share."""
    return Network(dense("q", [observations, *parameters.hidden, actions], 1.0, seed, 0), device)


def act(network: Network, observation: Observations, explore: float, draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Epsilon-greedy actions [n, agents] for observations [n, agents, observations]; draws [2, n, agents]."""
    rows = np.ascontiguousarray(observation.reshape(-1, observation.shape[-1]))
    values = forward_numpy(network.actor(), "q", ACTIVATION, rows).reshape(*observation.shape[:2], -1)
    random = (draws[1] * values.shape[2]).astype(np.int64)
    return np.asarray(np.where(draws[0] < explore, random, values.argmax(axis=2)), dtype=np.int64)


def exploration(
    parameters: Parameters,
    occasion: Occasion,
    environment: VectorEnvironment,
    count: int,
    step: int,
    *,
    warm: bool,
) -> tuple[float, NDArray[np.float64]]:
    """The exploration rate now, and uniform numbers [2, n, agents] that belong to these environments and this step."""
    done = step / max(1.0, parameters.exploration_fraction * occasion.total_steps)
    rate = explored(parameters.epsilon_start, parameters.epsilon_end, done, warm=warm)
    draws = uniforms(
        Purpose.EXPLORE,
        occasion.seed,
        step // occasion.environments,
        np.arange(2)[:, None, None],
        np.asarray(environment.members)[None, :, None],
        np.arange(count)[None, None, :],
    )
    return rate, draws


class IndependentDqn(Team):
    """Independent DQN on this rank's teams."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        device: torch.device,
    ) -> None:
        """A fresh learner at step 0 with an empty buffer."""
        super().__init__(parameters, environment, occasion, device)
        self.parameters = parameters
        self.network = init(parameters, environment.observations, environment.actions, occasion.seed, device)
        self.target = self.network.vector.clone()
        layers = range(len(parameters.hidden) + 1)
        self._gradients = dqn.DqnGradients(self.network, self.target, parameters.discount, layers)

    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.generic]:
        """See Team.choose."""
        del vector_step
        world, warm = self.environment, self.network.warm
        explore, draws = exploration(self.parameters, self.occasion, world, self.agents, self.step, warm=warm)
        return act(self.network, observation, explore, draws)

    def learn(self, batch: Transitions, count: int) -> None:
        """See Team.learn: the joint transitions taken apart."""
        with torch.inference_mode():
            alone = Transitions(
                self.seen(batch.observation).flatten(0, 1),
                self.seen(batch.successor).flatten(0, 1),
                batch.action.reshape(-1).long(),
                batch.reward.reshape(-1),
                batch.alive.repeat_interleave(self.agents),
            )
            self._gradients.compute(alone, count * self.agents)
            self.apply(self.network, self.rate(self.parameters.learning_rate))
            if self.network.updates % self.parameters.target_update == 0:
                self.target.copy_(self.network.vector)

    def networks(self) -> dict[str, Network]:
        """See Team.networks."""
        return {"": self.network}

    def targets(self) -> dict[str, torch.Tensor]:
        """See Team.targets."""
        return {"": self.target}


register(
    Traits(
        name="independent-dqn",
        learner=IndependentDqn,
        head="q",
        activation=ACTIVATION,
        actions=frozenset({ActionType.DISCRETE}),
        team=True,
        q_value=head_values("q", ACTIVATION),
        preferences=head_outputs("q", ACTIVATION),
    )
)
