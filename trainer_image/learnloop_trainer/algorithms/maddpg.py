"""MADDPG: actors that see their own part, critics that see everything.

Lowe, Wu, Tamar, Harb, Abbeel & Mordatch (2017), arXiv 1706.02275, equations 5 and 6, algorithm 1; x is what all agents
see, a what all of them do:

y_i = r_i + gamma (1 - terminated) Q_target_i(x', mu_target(o_1'), ..., mu_target(o_k')),    L = E[ (Q_i(x, a) - y_i)^2
] grad J_i = E[ grad mu(o_i) grad_{a_i} Q_i(x, a_1, ..., mu(o_i), ..., a_k) ],    the others' actions from the buffer

Deviations, all deliberate: agents share one actor and one critic, which get the agent's number as a one-hot vector;
noise on the actions is Gaussian and falls linearly; actions are continuous (the paper's discrete messages are numbers
here) or hybrid; no policy ensembles and no inferred policies. `centralized: false` gives each critic its agent's part
only: independent DDPG (Lillicrap et al., 2016, arXiv 1509.02971), the baseline.

Hybrid actions, a choice and numbers that go with it: the actor puts out the numbers and a logit for each choice, and
critics get the choice as a one-hot vector. The actor's gradient is that of the value expected over all choices, by
the softmax of the logits (exact, where the paper has Gumbel-softmax). To explore, a choice is drawn at random as often
as the numbers' noise is large.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.randomness import Purpose, uniforms
from learnloop_environments.spaces import Actions, ActionType, Observations, VectorEnvironment, agents, middle
from learnloop_trainer.algorithms import base, logged_batches
from learnloop_trainer.neural import schedules
from learnloop_trainer.neural.networks import Floats, Network, dense, forward, forward_numpy
from learnloop_trainer.replay import Transitions

ACTIVATION = "relu"
Leaves = Mapping[str, torch.Tensor]


def init(
    parameters: Parameters,
    team: int,
    observations: int,
    dimensions: int,
    seed: int,
    device: torch.device,
    choices: int = 0,
) -> tuple[Network, Network]:
    """Fresh actor and critic; of hybrid actions, the first of the `dimensions` is one of so many choices."""
    width = dimensions - bool(choices) + choices
    inputs = team * (observations + width + 1) if parameters.centralized else observations + width
    actor = dense("actor", [observations, *parameters.hidden, width], 0.01, seed, 0)
    return Network(actor, device), Network(dense("critic", [inputs, *parameters.hidden, 1], 1.0, seed, 1), device)


def act(
    network: Network,
    observation: Observations,
    noise: NDArray[np.float64],
    choices: int = 0,
    random: NDArray[np.float64] | None = None,
) -> Floats:
    """Actions [n, agents, dimensions] in [-1, 1] for observations [n, agents, observations] and noise alike.

    Of hybrid ones the noise on the first is left out: `random` [2, n, agents] are two uniform numbers for the choice,
    whether it is drawn (below 0) and which it then is.
    """
    rows = np.ascontiguousarray(observation.reshape(-1, observation.shape[-1]))
    outputs = forward_numpy(network.actor(), "actor", ACTIVATION, rows)
    numbers = np.tanh(outputs[:, choices:]).reshape(*noise.shape[:2], -1)
    if not choices:
        return np.clip(numbers + noise, -1.0, 1.0).astype(np.float32)
    best = outputs[:, :choices].argmax(axis=1).reshape(noise.shape[:2])
    if random is not None:
        best = np.where(random[0] < 0, np.floor(random[1] * choices), best)
    chosen = middle(best, choices)[..., None]
    return np.concatenate((chosen, np.clip(numbers + noise[..., 1:], -1.0, 1.0)), axis=2).astype(np.float32)


def likelihood(leaves: Leaves, observation: torch.Tensor, choices: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each choice [n, agents, choices], and numbers [n, agents, numbers] in (-1, 1); observations [n, agents, …]."""
    count, agents, width = observation.shape
    outputs = forward(leaves, "actor", ACTIVATION, observation.reshape(-1, width)).view(count, agents, -1)
    return torch.softmax(outputs[..., :choices], 2), torch.tanh(outputs[..., choices:])


def policy(leaves: Leaves, observation: torch.Tensor, choices: int = 0) -> torch.Tensor:
    """Critics' inputs [n, agents, choices + numbers] for the best actions for observations [n, agents, …]."""
    likely, numbers = likelihood(leaves, observation, choices)
    if not choices:
        return numbers
    return torch.cat((one_hot(likely.argmax(2), choices).to(numbers.dtype), numbers), 2)


def critic_actions(action: torch.Tensor, choices: int) -> torch.Tensor:
    """Critics' inputs [n, agents, choices + numbers] for actions [n, agents, dimensions] in [-1, 1]."""
    if not choices:
        return action
    which = ((action[..., 0] + 1) / 2 * choices).long().clamp(0, choices - 1)
    return torch.cat((one_hot(which, choices).to(action.dtype), action[..., 1:]), 2)


def value(leaves: Leaves, observation: torch.Tensor, action: torch.Tensor, *, centralized: bool) -> torch.Tensor:
    """Each agent's value [n, agents].

    `action` is [n, agents, agents, choices + numbers]: for each agent's value (axis 1), what everyone does (axis 2).
    """
    count, team, _ = observation.shape
    if centralized:
        everything = observation.reshape(count, 1, -1).expand(-1, team, -1)
        who = torch.eye(team, device=observation.device).expand(count, -1, -1)
        inputs = torch.cat((everything, action.flatten(2), who), 2)
    else:
        own = torch.arange(team, device=observation.device)
        inputs = torch.cat((observation, action[:, own, own]), 2)
    return forward(leaves, "critic", ACTIVATION, inputs.reshape(count * team, -1)).view(count, team)


def joint(action: torch.Tensor) -> torch.Tensor:
    """The same actions [n, agents, dimensions] for the value of every agent: [n, agents, agents, dimensions]."""
    return action.unsqueeze(1).expand(-1, action.shape[1], -1, -1)


def replaced(action: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """As `joint`, but for agent i's value agent i does `own` and the others what they did."""
    diagonal = torch.eye(action.shape[1], dtype=torch.bool, device=action.device).view(1, *2 * [action.shape[1]], 1)
    return torch.where(diagonal, joint(own), joint(action))


class Maddpg(logged_batches.Team):
    """MADDPG on this rank's teams."""

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        self.choices = environment.bounds.choices if environment.bounds is not None else 0
        sizes = (agents(environment), environment.observations, environment.actions)
        network, self.critic = init(parameters, *sizes, occasion.seed, device, self.choices)
        super().__init__(parameters, environment, occasion, network, others={"critic": self.critic})

    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.generic]:
        first, second = uniforms(
            Purpose.EXPLORE,
            self.occasion.seed,
            vector_step,
            np.arange(2)[:, None, None, None],
            np.asarray(self.environment.members)[None, :, None, None],
            np.arange(self.agents)[None, None, :, None],
            np.arange(self.environment.actions)[None, None, None, :],
        )
        warm = self.network.warm
        if self.step < self.parameters.learning_starts and not warm:
            return np.asarray(2.0 * first - 1.0, dtype=np.float32)
        done = self.step / self.occasion.total_steps
        deviation = schedules.explored(self.parameters.noise_start, self.parameters.noise_end, done, warm=warm)
        normal = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)  # Box & Muller (1958)
        random = np.stack((first[..., 0] - deviation, second[..., 0]))
        return act(self.network, observation, deviation * normal, self.choices, random)

    def learn(self, batch: Transitions, count: int) -> None:
        parameters, central, choices = self.parameters, self.parameters.centralized, self.choices
        observation, successor = self.by_agent(batch.observation), self.by_agent(batch.successor)
        action, share = critic_actions(self.by_agent(batch.action), choices), count * self.agents
        with torch.no_grad():
            future = policy(self.network.views(self.targets[""]), successor, choices)
            target = self.critic.views(self.targets["critic"])
            goal = value(target, successor, joint(future), centralized=central)
            goal = batch.reward + parameters.discount * batch.alive.unsqueeze(1) * goal
        error = value(self.critic.leaves, observation, joint(action), centralized=central) - goal
        torch.autograd.backward(error.square().sum() / share)
        self.apply(self.critic)
        if not schedules.held(self.step / self.occasion.total_steps, warm=self.network.warm):
            torch.autograd.backward(-self._expected(observation, action) / share)
            self.critic.gradient.zero_()  # the actor's loss passes through the critic and must not move it
            self.apply(self.network, self.rate(parameters.actor_learning_rate))
        with torch.no_grad():
            self.targets[""].lerp_(self.network.vector, parameters.target_rate)
            self.targets["critic"].lerp_(self.critic.vector, parameters.target_rate)

    def _expected(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Sum over all agents of the value of what the actor would do now, of choices over all there are."""
        likely, numbers = likelihood(self.network.leaves, observation, self.choices)
        total = numbers.new_zeros(())
        for choice in range(max(1, self.choices)):
            own = numbers
            if self.choices:
                which = torch.full(numbers.shape[:2], choice, device=numbers.device)
                own = torch.cat((one_hot(which, self.choices).to(numbers.dtype), numbers), 2)
            worth = value(
                self.critic.leaves, observation, replaced(action, own), centralized=self.parameters.centralized
            )
            total = total + (worth * likely[..., choice] if self.choices else worth).sum()
        return total

    @property
    def updates(self) -> int:
        return self.critic.updates


def agents_critics(learner: Maddpg, observations: Observations, taken: Actions) -> Floats:
    """Of a team's actions as the environment takes them, what each agent's critic thinks: [n, agents]."""
    device = learner.critic.vector.device
    with torch.no_grad():
        observation = torch.from_numpy(observations).to(device)
        action = joint(critic_actions(torch.from_numpy(base.unscaled(learner, taken)).to(device), learner.choices))
        values = value(learner.critic.leaves, observation, action, centralized=learner.parameters.centralized)
        return np.asarray(values.cpu().numpy())


base.register(
    base.Traits(
        name="maddpg",
        learner=Maddpg,
        head="actor",
        activation=ACTIVATION,
        actions=frozenset({ActionType.CONTINUOUS, ActionType.HYBRID}),
        team=True,
        q_value=agents_critics,
    )
)
