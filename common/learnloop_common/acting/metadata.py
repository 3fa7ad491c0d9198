"""What a policy's file says of how it acts: two entries of the ONNX metadata, written by the trainer.

- `learnloop.behaviour`: a kinds.behaviour.Behaviour as JSON.
- `learnloop.bounds`: `{"low": [...], "high": [...], "choices": n}` of actions that are numbers; hybrid ones have the
  choice first. Needed where numbers are drawn.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import from_json

from learnloop_api.kinds.behaviour import Behaviour, usual
from learnloop_api.wire.base import LARGEST

BEHAVIOUR, BOUNDS, ALGORITHM = "learnloop.behaviour", "learnloop.bounds", "learnloop.algorithm"
LONGEST = 4_000_000  # characters of an entry
MOST_NUMBERS = 65_536


@dataclass(frozen=True, slots=True)
class Numbers:
    """Bounds of the numbers of an action; the choice before them, of `choices`, is not among them."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    choices: int = 0

    @property
    def dimensions(self) -> int:
        """How many numbers make an action, a choice included."""
        return len(self.low) + bool(self.choices)

    def written(self) -> str:
        """As an entry of the metadata."""
        return json.dumps({"low": self.low, "high": self.high, "choices": self.choices})


def behaviour(metadata: Mapping[str, str], *, continuous: bool) -> Behaviour:
    """How the policy acts; raises ValueError naming the entry. A file without the entry acts as is `usual`."""
    text = metadata.get(BEHAVIOUR)
    if text is None:
        return usual(metadata.get(ALGORITHM, ""), continuous=continuous)
    found = _object(BEHAVIOUR, text)
    if unknown := sorted(set(found) - set(Behaviour.model_fields)):
        raise ValueError(f"metadata {BEHAVIOUR}: {unknown[0]!r} is unknown: update this image, or export anew")
    try:
        read = Behaviour.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "behaviour"
        raise ValueError(f"metadata {BEHAVIOUR}: {field}: {first['msg']}") from None
    if (read.epsilon is None) == (read.kind == "epsilon-greedy"):
        raise ValueError(f"metadata {BEHAVIOUR}: epsilon goes with kind epsilon-greedy, which needs it")
    if read.temperature is not None and read.kind != "sampled":
        raise ValueError(f"metadata {BEHAVIOUR}: temperature goes with kind sampled")
    if continuous and read.kind == "epsilon-greedy":
        raise ValueError(f"metadata {BEHAVIOUR}: epsilon-greedy needs discrete actions, these are numbers")
    return read


def numbers(metadata: Mapping[str, str]) -> Numbers | None:
    """Bounds of the numbers; None where the file does not say them. Raises ValueError naming the entry."""
    text = metadata.get(BOUNDS)
    if text is None:
        return None
    found = _object(BOUNDS, text)
    low, high, choices = _finite(found.get("low")), _finite(found.get("high")), found.get("choices")
    if low is None or high is None or len(low) != len(high):
        raise ValueError(f"metadata {BOUNDS}: low and high must be lists of as many finite numbers")
    if not all(least < most for least, most in zip(low, high, strict=True)):
        raise ValueError(f"metadata {BOUNDS}: every low must be below its high")
    if not isinstance(choices, int) or isinstance(choices, bool) or not 0 <= choices <= MOST_NUMBERS:
        raise ValueError(f"metadata {BOUNDS}: choices must be a whole number from 0 to {MOST_NUMBERS}")
    return Numbers(low, high, choices)


def _object(entry: str, text: str) -> dict[str, object]:
    try:
        found = from_json(text) if len(text) <= LONGEST else None  # unlike json, bounded in its recursion
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"metadata {entry}: {text[:80]!r} is no JSON object")
    return found


def _finite(values: object) -> tuple[float, ...] | None:
    if not isinstance(values, list) or len(values) > MOST_NUMBERS:
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    found = tuple(float(value) for value in values if abs(value) <= LARGEST)
    return found if len(found) == len(values) else None
