"""Outcome values of a played episode, from the numbers that its steps report: Gymnasium's `info`, a world's counts."""

import logging
import math
from collections.abc import Mapping
from typing import Any

LAST, MOST = ".last", ".max"
LARGEST = 1e9
UNKNOWN = math.inf
"""Stands for a number of a step that is NaN or beyond ±1e9: reported, and not known."""
log = logging.getLogger(__name__)
_warned = set[str]()
MOST_VALUES = 60
"""Fewer than a trajectory may have: what else its agent measures needs room."""


class OutcomeValues(dict[str, float]):
    """For each number K of an episode's steps: `K`, their sum; `K.last`, the newest; `K.max`, the largest."""

    def note(self, info: Mapping[str, Any]) -> None:
        """Add a step. Anything but a finite number within ±1e9 is passed over, and further names once it is full."""
        for name, number in numbers(info).items():
            if number == UNKNOWN:
                if info[name] == UNKNOWN and name not in _warned:  # NaN in a column of many episodes: not reported
                    _warned.add(name)
                    log.warning("outcome value %s is passed over where it is NaN or beyond ±1e9", name)
            elif name in self or len(self) <= MOST_VALUES - 3:
                self[name] = self.get(name, 0.0) + number
                self[name + LAST] = number
                self[name + MOST] = max(number, self.get(name + MOST, number))


def numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in an info, arrays of one number included; `is_success` and `success` are the outcome's own."""
    plain = {name: value.item() if getattr(value, "size", 0) == 1 else value for name, value in info.items()}
    return {
        name: float(value) if -LARGEST <= value <= LARGEST else UNKNOWN
        for name, value in plain.items()
        if isinstance(value, int | float)
        if isinstance(name, str) and name not in ("is_success", "success")
    }


def source(name: str) -> str:
    """The number of a step that an outcome value comes from."""
    return name.removesuffix(LAST).removesuffix(MOST)
