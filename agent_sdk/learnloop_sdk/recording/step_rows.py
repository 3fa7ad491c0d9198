"""What an episode keeps while its agent acts: one tuple a step, made into a message when the agent is done.

An agent's step pays for that tuple and for nothing else: no check and no text; those come with the encoding, for all
steps at once. Both of its ways, the quick one for numbers and the schema's for everything else, write the same bytes.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from learnloop_api.wire.base import LogProb, Real
from learnloop_api.wire.trajectory import Choice, ChosenNumbers, ObservedNumbers, Trajectory
from learnloop_sdk.redact import Redactor, redact_trajectory

Decision = tuple[Any, Any, float | None, bool]
"""The last answer of act: observation, action, log-probability, and whether it was drawn."""
Row = tuple[Any, Any, float | None, bool, float, bool, bool]
"""A decision and what came of it: reward, terminated, truncated."""

_ANY_STEP = {"observation": [0.0], "action": 0}
# As wire.Step has them, but for text and objects: what passes is valid, and has nothing in it for a redactor. The three
# that are told by their truth, where they are true, are not looked at. One pass in compiled code, a quarter of a
# microsecond for each step of four numbers; wire.Step itself takes six times as long.
_Chosen = Annotated[Choice | ChosenNumbers, Field(union_mode="left_to_right")]
_NumberRows = Annotated[
    list[tuple[ObservedNumbers, _Chosen, LogProb | None, Any, Real, Any, Any]], Field(fail_fast=True)
]
_NUMBERS: TypeAdapter[list[Row]] = TypeAdapter(_NumberRows, config=ConfigDict(strict=True, allow_inf_nan=False))


class Steps:
    """The rows of one trajectory; see wire.Step. `values`: what policies thought actions worth, by step."""

    __slots__ = ("rows", "values")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.values: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def append(
        self, decision: Decision, reward: float, terminated: bool, truncated: bool, value: float | None = None
    ) -> None:
        """One more. `value`: what the policy thought the action worth."""
        if value is not None:
            self.values[len(self.rows)] = value
        self.rows.append((*decision, reward, terminated, truncated))

    def cut(self) -> None:
        """The last one was not the episode's last one."""
        self.rows[-1] = (*self.rows[-1][:6], True)

    def plain(self) -> list[dict[str, Any]]:
        """wire.Step as plain data, for each."""
        return _plain(self.rows, self.values)

    def numbers(self) -> list[Row] | None:
        """The rows as the schema takes them, where there is no text among them that a redactor should see; else None,
        which means: ask the schema."""
        try:
            return _NUMBERS.validate_python(self.rows)
        except ValidationError:
            return None


def encode(head: dict[str, Any], steps: Steps, redactor: Redactor) -> bytes:
    """One wire.Trajectory as JSON, redacted and checked. What is false or absent by default is left out of a step.

    Args:
        head: all of it but the steps, as plain data.
        redactor: applied to every string of it.

    Raises:
        ValidationError: the schema does not take it.
        Exception: whatever the redactor raises.
    """
    rows = steps.numbers()
    told = [_ANY_STEP] if rows is not None else steps.plain()
    clean = Trajectory.model_validate(redact_trajectory(head | {"steps": told}, redactor))
    if rows is None:
        rows = [
            (one.observation, one.action, one.log_prob, one.exploration, one.reward, one.terminated, one.truncated)
            for one in clean.steps
        ]
    text = clean.model_dump_json(exclude={"steps"}, exclude_none=True).encode()
    return b'%b,"steps":%b}' % (text[:-1], to_json(_plain(rows, steps.values), inf_nan_mode="null"))


def _plain(rows: list[Row], values: dict[int, float]) -> list[dict[str, Any]]:
    found = []
    for observation, action, log_prob, exploration, reward, terminated, truncated in rows:
        step = {"observation": observation, "action": action, "reward": reward}
        if log_prob is not None:
            step["log_prob"] = log_prob
        if terminated:
            step["terminated"] = True
        if truncated:
            step["truncated"] = True
        if exploration:
            step["exploration"] = True
        found.append(step)
    for place, value in values.items():
        found[place]["q_value"] = value
    return found
