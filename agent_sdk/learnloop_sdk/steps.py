"""What an episode keeps while its agent acts: a few references a step, made into a message when the agent is done.

An agent's step pays for appending to seven columns and for nothing else: no object for each step, which would wake the
garbage collector, and no check; those come with the encoding, for all steps at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any

from pydantic_core import to_json

from learnloop_api.wire.base import LARGEST, MOST
from learnloop_api.wire.trajectory import MAX_OBSERVATION, Trajectory
from learnloop_sdk.redact import Redactor, redact_trajectory

MAX_ACTION = 4096
MAX_LOG_PROB = 10_000
_NUMBERS = {int, float}  # bool, which is no number, is a type of its own here
_ANY_STEP = {"observation": [0.0], "action": 0}


@dataclass(slots=True)
class Decision:
    """The last answer of act: what record needs to know about it."""

    observation: Any
    action: Any
    log_prob: float | None
    exploration: bool


class Steps:
    """Columns of equal length; see wire.Step."""

    __slots__ = ("_truncated", "actions", "explorations", "log_probs", "observations", "rewards", "terminated")

    def __init__(self) -> None:
        self.observations: list[Any] = []
        self.actions: list[Any] = []
        self.log_probs: list[float | None] = []
        self.rewards: list[float] = []
        self.terminated: list[bool] = []
        self._truncated: list[bool] = []
        self.explorations: list[bool] = []

    def __len__(self) -> int:
        return len(self.rewards)

    def append(self, decision: Decision, reward: float, terminated: bool, truncated: bool) -> None:
        """One more."""
        self.observations.append(decision.observation)
        self.actions.append(decision.action)
        self.log_probs.append(decision.log_prob)
        self.explorations.append(decision.exploration)
        self.rewards.append(reward)
        self.terminated.append(terminated)
        self._truncated.append(truncated)

    def cut(self) -> None:
        """The last one was not the episode's last one."""
        self._truncated[-1] = True

    def plain(self) -> list[dict[str, Any]]:
        """wire.Step as plain data, for each; what is false by default is left out where it is false."""
        columns = (
            self.observations,
            self.actions,
            self.log_probs,
            self.rewards,
            self.terminated,
            self._truncated,
            self.explorations,
        )
        found = []
        for observation, action, log_prob, reward, terminated, truncated, exploration in zip(*columns, strict=True):
            step = {"observation": observation, "action": action, "log_prob": log_prob, "reward": reward}
            if terminated:
                step["terminated"] = True
            if truncated:
                step["truncated"] = True
            if exploration:
                step["exploration"] = True
            found.append(step)
        return found

    def are_numbers(self) -> bool:
        """Would the schema take all of them, and is there no text in them that a redactor should see?

        False means: ask the schema. It is for the many episodes of numbers only, which this tells at a tenth of the
        price of validating each step.
        """
        known = [value for value in self.log_probs if value is not None]
        return (
            _are_vectors(self.observations, 1, MAX_OBSERVATION)
            and (_are_integers(self.actions) or _are_vectors(self.actions, 0, MAX_ACTION))
            and _are_numbers(self.rewards)
            and _are_numbers(known)
            and max(known, default=0) <= MAX_LOG_PROB
        )


def encode(head: dict[str, Any], steps: Steps, redactor: Redactor) -> bytes:
    """One wire.Trajectory as JSON, redacted and checked.

    Args:
        head: all of it but the steps, as plain data.
        redactor: applied to every string of it.

    Raises:
        ValidationError: the schema does not take it.
        Exception: whatever the redactor raises.
    """
    if not steps.are_numbers():
        whole = redact_trajectory(head | {"steps": steps.plain()}, redactor)
        return Trajectory.model_validate(whole).model_dump_json(exclude_none=True).encode()
    clean = Trajectory.model_validate(redact_trajectory(head | {"steps": [_ANY_STEP]}, redactor))
    text = clean.model_dump_json(exclude={"steps"}, exclude_none=True).encode()
    return b'%b,"steps":%b}' % (text[:-1], to_json(steps.plain()))


def _are_numbers(values: Iterable[Any]) -> bool:
    numbers = list(values)
    return not numbers or (
        set(map(type, numbers)) <= _NUMBERS
        and min(numbers) >= -LARGEST
        and max(numbers) <= LARGEST
        and isfinite(sum(numbers))  # a NaN hides from min and max, and not from a sum
    )


def _are_integers(values: list[Any]) -> bool:
    return set(map(type, values)) == {int} and min(values) >= -MOST and max(values) <= MOST


def _are_vectors(values: list[Any], shortest: int, longest: int) -> bool:
    if set(map(type, values)) != {list}:
        return False
    lengths = list(map(len, values))
    return shortest <= min(lengths) and max(lengths) <= longest and _are_numbers(chain.from_iterable(values))
