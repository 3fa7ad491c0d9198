"""Implicit Q-learning from a log: values by expectile regression, a policy by weighted imitation.

Kostrikov, Nair & Levine (2021), arXiv 2110.06169, equations 5, 6 and 7, algorithm 1:

    L(V)  = E[ |tau - 1(u < 0)| u^2 ],    u = min_i Q_target_i(s, a) - V(s)
    L(Q_i) = E[ (r + gamma (1 - terminated) V(s') - Q_i(s, a))^2 ] / 2
    L(pi) = -E[ min(100, exp(beta u / sd(u))) log pi(a|s) ]

Every action that is judged was logged, so no value is imagined: V stands for a maximum over what the log has tried.

Deviations, all deliberate:
- Advantages are divided by their standard deviation over the batch, so that beta means the same in every world. The
  authors divide rewards by a number of each benchmark instead.
- Actions may be choices, numbers, or both: the policy is the distribution that fits them (see `action_heads`). Numbers
  are imitated before tanh, and those nearer than EDGE to their bound as if they were there. The authors' policy is a
  normal distribution around tanh of the mean.
- `totalSteps` counts logged steps learned from; an environment, where there is one, is played in evaluation only.
- No dropout and no cosine schedule; the step size of all networks falls as `learningRateSchedule` says.
- The gradients are written out by hand (`IqlUpdate`); the tests compare with autograd.
- The last step of an episode that was cut off is left out: what came then was not logged.
"""

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment
from learnloop_environments.spaces import Bounds
from learnloop_trainer.algorithms import action_heads, base, logged_batches
from learnloop_trainer.neural.networks import Network, Stack, dense, side_by_side
from learnloop_trainer.replay import Transitions

ACTIVATION, CRITIC_ACTIVATION = "tanh", "relu"
CRITICS = ["critic0", "critic1"]
EDGE = 0.99
MOST_WEIGHT = 100.0


def init(
    parameters: Parameters, observations: int, head: action_heads.Head, width: int, seed: int, device: torch.device
) -> list[Network]:
    """Fresh policy, value and critics; `width`: numbers by which the critics see an action."""
    sizes = [*parameters.hidden]
    policy = dense("policy", [observations, *sizes, head.outputs], 0.01, seed, 0)
    value = dense("value", [observations, *sizes, 1], 1.0, seed, 1)
    critics = [dense(name, [observations + width, *sizes, 1], 1.0, seed, 2 + i) for i, name in enumerate(CRITICS)]
    return [Network(arrays, device) for arrays in (policy | head.parameters(), value, side_by_side(*critics))]


def critic_actions(action: torch.Tensor, choices: int) -> torch.Tensor:
    """Actions as critics see them [n, width]: choices as one-hot vectors, numbers as they are, within [-1, 1]."""
    if not choices:
        return action
    if action.dtype == torch.int64:
        return torch.nn.functional.one_hot(action, choices).float()
    return torch.cat((torch.nn.functional.one_hot(action[:, 0].long(), choices).float(), action[:, 1:]), 1)


def before_tanh(action: torch.Tensor, bounds: Bounds | None) -> torch.Tensor:
    """Actions as the head keeps them: numbers before tanh."""
    if bounds is None:
        return action
    first = int(bool(bounds.choices))
    return torch.cat((action[:, :first], torch.atanh(action[:, first:].clamp(-EDGE, EDGE))), 1)


def expectile_slope(advantage: torch.Tensor, expectile: float) -> torch.Tensor:
    """Gradient of |tau - 1(u < 0)| u^2 by V, where u = Q - V."""
    weight = torch.where(advantage < 0, 1.0 - expectile, expectile)
    return weight.mul_(advantage).mul_(-2.0)


class IqlUpdate:
    """One update of everything from a batch."""

    def __init__(
        self,
        networks: list[Network],
        target: torch.Tensor,
        head: action_heads.Head,
        parameters: Parameters,
        actions: int,
    ) -> None:
        """`target`: the target critics' flat parameters; `actions`: choices that the critics see as one-hot vectors."""
        layers = range(len(parameters.hidden) + 1)
        policy, value, critics = networks
        self._parameters, self._choices = parameters, actions
        self._policy, self._head = Stack(policy, ["policy"], ACTIVATION, layers), head.on(policy)
        self._value = Stack(value, ["value"], CRITIC_ACTIVATION, layers)
        self._critics = Stack(critics, CRITICS, CRITIC_ACTIVATION, layers)
        self._targets = Stack(critics, CRITICS, CRITIC_ACTIVATION, layers, vector=target)

    def judge(self, batch: Transitions) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages u [n] of the logged actions, and values V(s') [n]; remembers what `by_value` needs."""
        size = len(batch.observation)
        self._pairs = torch.cat((batch.observation, critic_actions(batch.action, self._choices)), 1)
        least = self._targets.forward(self._pairs).squeeze(2).amin(0)
        now, then = self._value.forward(batch.observation, batch.successor)[0].squeeze(1).split_with_sizes((size, size))
        return least - now, then.clone()

    def by_value(self, advantage: torch.Tensor, count: int) -> None:
        slope = expectile_slope(advantage, self._parameters.expectile)
        self._value.incoming(len(advantage))[0].copy_(slope.unsqueeze(1)).div_(count)
        self._value.backward(len(advantage))

    def by_critics(self, batch: Transitions, then: torch.Tensor, count: int) -> None:
        goal = torch.addcmul(batch.reward, batch.alive, then, value=self._parameters.discount)
        value = self._critics.forward(self._pairs)
        torch.sub(value, goal.view(1, -1, 1), out=self._critics.incoming(len(goal))).div_(count)
        self._critics.backward(len(goal))

    def by_policy(self, batch: Transitions, taken: torch.Tensor, weight: torch.Tensor, count: int) -> None:
        size = len(weight)
        outputs = self._policy.forward(batch.observation)[0]
        self._head.evaluate(outputs, taken)
        self._head.backward(weight / -count, 0.0, self._policy.incoming(size)[0])
        self._policy.backward(size)


class IqlOffline(logged_batches.LogLearner):
    """Implicit Q-learning on this rank's part of every batch."""

    UPDATES = 16

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: base.Occasion, device: torch.device
    ) -> None:
        bounds = environment.bounds
        head, choices = action_heads.fitting(environment), environment.actions if bounds is None else bounds.choices
        width = choices if bounds is None else environment.actions + (choices - 1 if choices else 0)
        networks = init(parameters, environment.observations, head, width, occasion.seed, device)
        policy, self.value, self.critics = networks
        others = {"value": self.value, "critics": self.critics}
        super().__init__(parameters, environment, occasion, policy, others, "critics")
        self._gradients = IqlUpdate(networks, self.target, head, parameters, choices)

    def _learn(self, batch: Transitions) -> None:
        parameters, count = self.parameters, self.parameters.batch_size
        advantage, then = self._gradients.judge(batch)
        weight = torch.exp(advantage * (parameters.inverse_temperature / self._deviation(advantage, count)))
        self._gradients.by_value(advantage, count)
        self._apply(self.value)
        if not self.held:
            taken = before_tanh(batch.action, self.environment.bounds)
            self._gradients.by_policy(batch, taken, weight.clamp_(max=MOST_WEIGHT), count)
            self._apply(self.network)
        self._gradients.by_critics(batch, then, count)
        self._apply(self.critics)

    def _deviation(self, advantage: torch.Tensor, count: int) -> torch.Tensor:
        """Collective: the standard deviation over all ranks' parts of the batch."""
        sums = torch.stack((advantage.sum(), advantage.square().sum())).div_(count)
        self.occasion.group.add_up(sums)
        return (sums[1] - sums[0].square()).clamp_(min=1e-12).sqrt_()


base.register(
    base.Traits(
        name="iql-offline",
        learner=IqlOffline,
        head="policy",
        activation=ACTIVATION,
        actions=base.ALL_ACTIONS,
        recorded=True,
        deviation=(action_heads.DEVIATION, action_heads.LEAST, action_heads.MOST),
    )
)
