"""QMIX: the team's value as a monotonic mix of its agents' values.

Rashid, Samvelyan, Schroeder de Witt, Farquhar, Foerster & Whiteson (2018), arXiv 1803.11485, equations 4 to 6:

    Q_tot(s, a) = w2(s)^T elu(W1(s)^T q + b1(s)) + b2(s),    q_i = Q(o_i, a_i),    W1, w2 = |hypernetwork(s)| >= 0
    y = r + gamma (1 - terminated) Q_tot_target(s', argmax_a' q),    L = E[ (Q_tot(s, a) - y)^2 ]

Weights that are never negative give dQ_tot / dq_i >= 0: what is best for each agent is best for the team, so each can
act by its own value alone. The tests check that inequality.

Deviations, all deliberate: the state is all observations together; agents share a feed-forward network instead of a
recurrent one; targets are double (van Hasselt et al., 2016); the team's reward is the mean of its agents' rewards; Adam
instead of RMSProp. Gradients by autograd: the hypernetworks' products leave little for a hand-written pass to save.
"""

from collections.abc import Mapping

import torch
from torch.nn.functional import elu

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.spaces import VectorEnvironment, agents
from learnloop_trainer.algorithms import base, logged_batches
from learnloop_trainer.neural.networks import Network, dense, forward
from learnloop_trainer.replay import Transitions

ACTIVATION = "relu"


def init(
    parameters: Parameters, team: int, observations: int, actions: int, seed: int, device: torch.device
) -> Network:
    """The agents' Q-network `q` and the hypernetworks `w1`, `b1`, `w2` and `b2` over one flat vector."""
    state, width = team * observations, parameters.embedding
    arrays = dense("q", [observations, *parameters.hidden, actions], 1.0, seed, 0)
    sizes = {"w1": [state, team * width], "b1": [state, width], "w2": [state, width], "b2": [state, width, 1]}
    for stream, (name, layers) in enumerate(sizes.items(), 1):
        arrays |= dense(name, layers, 1.0, seed, stream)
    return Network(arrays, device)


def mix(leaves: Mapping[str, torch.Tensor], values: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The team's value [n] from the agents' values [n, agents] and states [n, agents * observations]."""
    first = forward(leaves, "w1", ACTIVATION, state).abs().view(len(state), values.shape[1], -1)
    hidden = elu((values.unsqueeze(1) @ first).squeeze(1) + forward(leaves, "b1", ACTIVATION, state))
    last = forward(leaves, "w2", ACTIVATION, state).abs()
    return (hidden * last).sum(1) + forward(leaves, "b2", ACTIVATION, state).squeeze(1)


def loss(
    leaves: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    batch: Transitions,
    discount: float,
    team: int,
) -> torch.Tensor:
    """The sum of the squared errors of the team's value over the transitions."""

    def values(parameters: Mapping[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        flat = rows.reshape(len(rows) * team, -1)
        return forward(parameters, "q", ACTIVATION, flat).view(len(rows), team, -1)

    action = batch.action.view(len(batch.action), team, 1).long()
    with torch.no_grad():
        best = values(leaves, batch.successor).argmax(2, keepdim=True)
        future = values(target, batch.successor).gather(2, best).squeeze(2)
        goal = batch.reward.mean(1) + discount * batch.alive * mix(target, future, batch.successor)
    chosen = values(leaves, batch.observation).gather(2, action).squeeze(2)
    return (mix(leaves, chosen, batch.observation) - goal).square().sum()


class Qmix(logged_batches.DiscreteTeam):
    """QMIX on this rank's teams."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        sizes = (agents(environment), environment.observations, environment.actions)
        super().__init__(parameters, environment, occasion, init(parameters, *sizes, occasion.seed, device))

    def learn(self, batch: Transitions, count: int) -> None:
        target = self.network.views(self.targets[""])
        error = loss(self.network.leaves, target, batch, self.parameters.discount, self.agents)
        torch.autograd.backward(error / count)
        self.apply(self.network)
        self.follow()


base.register_q_learner("qmix", Qmix, ACTIVATION, team=True)
