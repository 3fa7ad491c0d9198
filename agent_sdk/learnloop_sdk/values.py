"""Whatever an agent's framework calls an array, as what JSON has, and as it is now: an agent may write into its own."""

from collections.abc import Sequence
from typing import Any

from learnloop_sdk.errors import InvalidObservation

_ATOMS = frozenset((int, float, bool, str, type(None)))
_FLOATS = {float}


def plain(value: Any) -> Any:
    """Arrays and array scalars (anything with tolist) as lists and numbers; a list as a copy of it."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return value[:]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def flat(observation: Any) -> list[float]:
    """An observation as the flat list of floats a policy takes; raises InvalidObservation."""
    value = plain(observation)
    if type(value) is list and set(map(type, value)) <= _FLOATS:
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
