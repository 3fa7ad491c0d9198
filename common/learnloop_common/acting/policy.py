"""What a policy is to whoever acts with it, and the one way from observations to decisions."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import GREEDY, Behaviour
from learnloop_common.acting.deciding import Advice, Decision, Uniform, decide
from learnloop_common.acting.metadata import Numbers

Observations = NDArray[np.float32]
Results = dict[str, NDArray[Any]]
"""By name; leading axis [batch]: `action`, int64 [batch] or float32 [batch, numbers], greedy; `logits` of the choices;
`mean` and `deviation` [batch, numbers] where numbers are drawn."""


class PolicyError(RuntimeError):
    """The policy itself failed on a valid observation."""


class ModelError(ValueError):
    """The file is not a policy that can be run; one sentence saying what is wrong and what is expected."""


class Policy(Protocol):
    """A policy with discrete actions, with numbers as actions, or with a choice and numbers (hybrid)."""

    @property
    def continuous(self) -> bool:
        """Actions are vectors of numbers; of hybrid ones the first is a choice."""
        ...

    @property
    def observations(self) -> int | None:
        """Length of an observation; None when any length is taken."""
        ...

    @property
    def actions(self) -> int:
        """How many actions there are, or how many numbers make one."""
        ...

    @property
    def platform(self) -> str:
        """What runs it, in Open Inference Protocol's words."""
        ...

    @property
    def behaviour(self) -> Behaviour:
        """How it acts."""
        ...

    @property
    def numbers(self) -> Numbers | None:
        """Bounds of the numbers it draws; None where it draws none."""
        ...

    def run(self, observation: Observations) -> Results:
        """What the network says of observations [batch, observations]; raises PolicyError."""
        ...


def advise(policy: Policy, observation: Observations) -> list[Advice]:
    """What the network says of each row; raises PolicyError."""
    results = policy.run(observation)
    actions = results["action"].tolist()
    columns = [results[name].tolist() if name in results else [None] * len(actions) for name in _DISTRIBUTION]
    return [Advice(*row) for row in zip(actions, *columns, strict=True)]


_DISTRIBUTION = ("logits", "mean", "deviation")


def choose(policy: Policy, observation: Observations, uniform: Uniform, *, explore: bool = True) -> list[Decision]:
    """One decision for each row, as the policy behaves, or greedily; raises PolicyError."""
    behaviour = policy.behaviour if explore else GREEDY
    return [decide(behaviour, policy.numbers, advice, uniform) for advice in advise(policy, observation)]
