"""What every dimension plays with: the two policies, episodes of its own, and a clock."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.evaluation_suite import DIMENSIONS, Dimension, Suite
from learnloop_environments import Conditions, VectorEnvironment
from learnloop_environments.base import Observations
from learnloop_environments.randomness import Split
from learnloop_trainer.evaluation.held_out_episodes import held_out, nominal
from learnloop_trainer.evaluation.play import Policy, play
from learnloop_trainer.training_order import Order

Returns = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]
Disturb = Callable[[VectorEnvironment], VectorEnvironment]
FIRST = 1_000_000  # far above the numbers of the evaluation itself
ROOM = 64  # conditions of one dimension at most
PER_CONDITION = 10_000  # numbers reserved for each


class NotMeasured(Exception):
    """Why a dimension has no figures; the text is for a human."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Returns [episodes] of ours and of the baseline under each condition, and what they are compared with.

    `alike`: ours in the state that the baseline is in, where `ours` are in another (fine-tuned, not yet trained).
    """

    conditions: list[str]
    ours: list[Returns]
    theirs: list[Returns]
    reference: list[Returns]
    compared: str
    alike: list[Returns] | None = None


@dataclass(slots=True)
class Stage:
    """One run's exported policy against its baseline."""

    order: Order
    suite: Suite
    policy: Policy
    baseline: Policy
    policy_of: Callable[[Weights], Policy]  # the exported graph with other weights
    weights: Weights  # the exported policy's, by name
    milestones: Mapping[int, Weights]  # step → weights along training
    met: Observations  # [m, observations], what the policy met in evaluation
    device: torch.device
    alive: Callable[[str], None]
    serving: Weights | None = None  # the baseline's, where it is a policy of the same family
    dimension: Dimension = "robustness"
    deadline: float = field(default=float("inf"))
    _used: int = 0

    def enter(self, dimension: Dimension, deadline: float) -> None:
        """From now on this dimension plays, until `deadline` on the monotonic clock."""
        self.dimension, self.deadline, self._used = dimension, deadline, 0

    def check(self) -> None:
        """Raises NotMeasured when the time is up."""
        if time.monotonic() > self.deadline:
            raise NotMeasured("no time left: raise evaluation.suite.maxSeconds, or lower episodes")

    def fresh(self) -> int:
        """The first number of a condition's own episodes: no other condition has them."""
        if self._used >= ROOM:
            raise NotMeasured(f"more than {ROOM} conditions")
        number = FIRST + (DIMENSIONS.index(self.dimension) * ROOM + self._used) * PER_CONDITION
        self._used += 1
        return number

    def play(
        self,
        policy: Policy,
        first: int,
        conditions: Conditions | None = None,
        disturb: Disturb | None = None,
        split: Split = Split.HELD_OUT,
    ) -> Returns:
        """The policy's returns on the episodes from number `first`; raises NotMeasured when the time is up."""
        world = held_out(self.order, nominal(self.order) if conditions is None else conditions, first, split)
        build = world if disturb is None else lambda members: disturb(world(members))
        episodes = self.suite.episodes

        def told(done: int) -> None:
            self.alive(f"{self.dimension}: {done}/{episodes} episodes")
            self.check()

        told(0)
        return play(build, policy, self.order.spec.seed, episodes, told)[0]

    def both(
        self, conditions: Conditions | None = None, disturb: Disturb | None = None, policy: Policy | None = None
    ) -> tuple[Returns, Returns]:
        """Our returns and the baseline's on the same new episodes; `policy`: in the place of ours."""
        first = self.fresh()
        ours = self.play(policy or self.policy, first, conditions, disturb)
        return ours, self.play(self.baseline, first, conditions, disturb)
