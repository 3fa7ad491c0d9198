"""How well the policy works with partners it did not grow up with.

Cross-play (Hu et al., 2020, "Other-Play", arXiv 2003.02979): each member of the team in turn follows the serving
policy, as its neighbours do while a canary runs. A team that only understands itself falls far below its self-play.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations, agents
from learnloop_trainer.evaluation.held_out_episodes import sample
from learnloop_trainer.evaluation.play import Drawing, Policy
from learnloop_trainer.evaluation.suite.stage import Finding, NotMeasured, Stage


class Mixed:
    """A team in which one member follows another policy. Observations come team by team, as `play` asks."""

    def __init__(self, ours: Policy, partner: Policy, agents: int, odd: int) -> None:
        """`odd`: the number of the agent that follows `partner`."""
        self._ours, self._partner, self._agents, self._odd = ours, partner, agents, odd

    def begin(self, first: int) -> None:
        """See Drawing."""
        for policy in (self._ours, self._partner):
            if isinstance(policy, Drawing):
                policy.begin(first)

    def act(self, observation: Observations) -> NDArray[Any]:
        """See Policy. Both are asked for all agents: so each draws as it does alone."""
        odd = np.arange(len(observation)) % self._agents == self._odd
        actions = np.array(self._ours.act(observation))
        actions[odd] = self._partner.act(observation)[odd]
        return actions


def measure(stage: Stage) -> Finding:
    """Conditions: which member follows the serving policy; the reference is self-play, ours throughout."""
    count = agents(sample(stage.order))
    if count < 2:
        raise NotMeasured(f"{stage.order.spec.data.environment} has one agent: there is nobody to coordinate with")
    ours, theirs = [], []
    for odd in range(count):
        first = stage.fresh()
        ours.append(stage.play(Mixed(stage.policy, stage.baseline, count, odd), first))
        theirs.append(stage.play(stage.baseline, first))
    alone = stage.play(stage.policy, stage.fresh())
    names = [f"agent {odd} follows the serving policy" for odd in range(count)]
    return Finding(names, ours, theirs, [alone], "self-play")
