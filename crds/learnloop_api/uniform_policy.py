"""URI of the uniform random policy, which an agent starts with.

    uniform://discrete/4?observations=16          one of four choices
    uniform://multi-discrete/3x4?observations=5   a combination of choices, numbered in row-major order
    uniform://continuous/-2..2?observations=3     one number; -1..1*7: seven within the same bounds; commas between them
    uniform://hybrid/3/0..1,-1..1?observations=6  one of three choices, and two numbers

A member of a team asks for itself, with what it sees: for it the same addresses do.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import parse_qs, urlsplit

NUMBER = r"-?[0-9]+([.][0-9]+)?(e[-+]?[0-9]+)?"
BOUND = rf"{NUMBER}[.][.]{NUMBER}([*][1-9][0-9]{{0,3}})?"
COUNT = r"[1-9][0-9]{0,4}"
SPACES = (
    rf"discrete/{COUNT}",
    rf"multi-discrete/{COUNT}(x{COUNT}){{0,31}}",
    rf"continuous/{BOUND}(,{BOUND})*",
    rf"hybrid/{COUNT}/{BOUND}(,{BOUND})*",
)
PATTERN = rf"^uniform://({'|'.join(SPACES)})([?]observations={COUNT})?$"
COARSE = (
    "^uniform://(discrete/[1-9][0-9]{0,4}|multi-discrete/[1-9][0-9x]{0,63}|(continuous|hybrid/[1-9][0-9]{0,4})"
    "/[-+0-9.e*,]{4,1000})[?]observations=[1-9][0-9]{0,4}$"
)
"""All of these that say what is seen, and a few others: short enough to stand in every schema. 1000 is the most that
RE2, by which API servers match, repeats anything."""
HOW = "write uniform://discrete/4?observations=16, or multi-discrete/3x4, continuous/-2..2, hybrid/3/0..1,-1..1"
MOST = 65_536
"""Choices, combinations, or numbers of an action."""
ENVIRONMENTS: Mapping[str, str] = {
    "Acrobot-v1": "uniform://discrete/3?observations=6",
    "Blackjack-v1": "uniform://discrete/2?observations=45",
    "CartPole-v1": "uniform://discrete/2?observations=4",
    "CliffWalking-v1": "uniform://discrete/4?observations=48",
    "CliffWalkingSlippery-v1": "uniform://discrete/4?observations=48",
    "FrozenLake-v1": "uniform://discrete/4?observations=16",
    "FrozenLake8x8-v1": "uniform://discrete/4?observations=64",
    "MountainCar-v0": "uniform://discrete/3?observations=2",
    "MountainCarContinuous-v0": "uniform://continuous/-1..1?observations=2",
    "Pendulum-v1": "uniform://continuous/-2..2?observations=3",
    "Taxi-v4": "uniform://discrete/6?observations=500",
}
"""Addresses for the environments that every image has; a unit test holds them against the environments."""


@dataclass(frozen=True, slots=True)
class UniformSpaces:
    """Observations and actions of the policy."""

    choices: int = 0
    """0: none, all is numbers."""
    low: tuple[float, ...] = ()
    """Of the numbers; none: all is a choice."""
    high: tuple[float, ...] = ()
    observations: int | None = None
    """Length of what is seen; None: any."""

    def uri(self) -> str:
        numbers = ",".join(
            _bound(*ends, len(list(same))) for ends, same in groupby(zip(self.low, self.high, strict=True))
        )
        kind = "hybrid" if self.choices and numbers else "continuous" if numbers else "discrete"
        parts = [kind, *([str(self.choices)] if self.choices else []), *([numbers] if numbers else [])]
        return f"uniform://{'/'.join(parts)}" + (f"?observations={self.observations}" if self.observations else "")


def combinations(choices: Sequence[int]) -> int:
    """Number of combinations of these choices."""
    return math.prod(choices)


def parse(uri: str) -> UniformSpaces:
    """Read an address; raises ValueError with the fix."""
    if not re.fullmatch(PATTERN, uri):
        raise ValueError(f"{uri} is not valid: {HOW}")
    parts = urlsplit(uri)
    size = parse_qs(parts.query).get("observations")
    width = int(size[0]) if size else None
    words = parts.path.strip("/").split("/")
    if parts.netloc in ("discrete", "multi-discrete"):
        choices = combinations([int(number) for number in words[0].split("x")])
        if choices > MOST:
            raise ValueError(f"{uri} has {choices} choices, {MOST} are the most: {HOW}")
        return UniformSpaces(choices, observations=width)
    low, high = _bounds(uri, words[-1])
    return UniformSpaces(int(words[0]) if parts.netloc == "hybrid" else 0, low, high, width)


def _bounds(uri: str, text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    ends: list[tuple[float, float]] = []
    for part in text.split(","):
        bound, _, times = part.partition("*")
        low, high = (float(number) for number in bound.split(".."))
        if not low < high or not math.isfinite(high - low):
            raise ValueError(f"{uri}: invalid range {bound}: its low end must be below its high end: {HOW}")
        ends += [(low, high)] * int(times or 1)
        if len(ends) > MOST:
            raise ValueError(f"{uri} has over {MOST} numbers: {HOW}")
    return tuple(low for low, _ in ends), tuple(high for _, high in ends)


def _bound(low: float, high: float, times: int) -> str:
    return f"{_written(low)}..{_written(high)}" + (f"*{times}" if times > 1 else "")


def _written(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)
