"""One dimension being measured, and the disturbances it may add."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.evaluation import DIMENSIONS, Dimension, Suite
from learnloop_environments import Conditions, VectorEnvironment
from learnloop_environments.base import Observations, Step
from learnloop_environments.randomness import Purpose, Split, generator
from learnloop_environments.wrappers import Wrapper
from learnloop_trainer.evaluation.held_out_episodes import Policy, held_out, nominal, play
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


class Noisy(Wrapper):
    """Adds normal noise to what is seen; the dynamics, the shield and the rewards stay exact."""

    def __init__(self, inner: VectorEnvironment, deviation: NDArray[np.floating], seed: int) -> None:
        """`deviation` [observations], in the unit of each observation."""
        super().__init__(inner)
        self._deviation, self._random = deviation.astype(np.float32), generator(Purpose.NOISE, seed, 1)

    def _blurred(self, observation: Observations) -> Observations:
        noise = self._random.standard_normal(observation.shape, dtype=np.float32)
        return observation + self._deviation * noise

    def reset(self) -> Observations:
        return self._blurred(self.inner.reset())

    def step(self, actions: NDArray[Any]) -> Step:
        step = self.inner.step(actions)
        return replace(step, observation=self._blurred(step.observation), successor=self._blurred(step.successor))


class Sticky(Wrapper):
    """Now and then the previous action once more (Machado et al., 2018, arXiv 1709.06009): for any environment."""

    def __init__(self, inner: VectorEnvironment, share: float, seed: int) -> None:
        """`share` of steps in which the action before is executed instead."""
        super().__init__(inner)
        self._share, self._random = share, generator(Purpose.NOISE, seed, 2)
        self._before: NDArray[Any] | None = None
        self._going = np.ones(len(inner.members), dtype=np.bool_)

    def reset(self) -> Observations:
        self._before = None
        return self.inner.reset()

    def step(self, actions: NDArray[Any]) -> Step:
        """An episode's first action is never replaced."""
        executed = actions
        draws = self._random.random(len(actions))
        if self._before is not None:
            stuck = draws < self._share
            executed = actions.copy()
            executed[stuck & self._going] = self._before[stuck & self._going]
        step = self.inner.step(executed)
        self._before, self._going = executed, ~(step.terminated | step.truncated)
        return step
