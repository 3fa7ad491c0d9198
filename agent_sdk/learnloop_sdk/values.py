"""Whatever an agent's framework calls an array, as what JSON has."""

from collections.abc import Sequence
from typing import Any

from learnloop_sdk.errors import InvalidObservation


def plain(value: Any) -> Any:
    """Arrays and array scalars (anything with tolist) as lists and numbers."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def flat(observation: Any) -> list[float]:
    """An observation as the flat list of floats a policy takes; raises InvalidObservation."""
    value = plain(observation)
    if isinstance(value, list) and all(type(item) is float for item in value):
        return value
    numbers: list[float] = []
    _flatten(value, numbers)
    return numbers


def _flatten(value: Any, into: list[float]) -> None:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            _flatten(plain(item), into)
    elif isinstance(value, (bool, int, float)):
        into.append(float(value))
    else:
        raise InvalidObservation(f"observation: a policy takes numbers, not {type(value).__name__}")
