"""Counters of policy servers by name, and what happened between two readings of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Counters = Mapping[str, float]
"""Counters by name; the names below, `gain` and `loss` (sums of positive and of negative returns)."""
ENDED = "ended/"
"""+ success, failure, error, withdrawn: episodes by outcome."""
REQUESTS, FAILED = "requests", "failed"
"""Requests for an action, and those that failed because of the server or its policy."""
WITHIN = "within/"
"""+ seconds: requests that took no longer."""
COMPARED, AGREED, COPIES_FAILED = "shadow/compared", "shadow/agreed", "shadow/failed"
"""Copies of requests whose answer was compared with stable's, those with the same action, and those the policy failed
on, which are not compared."""
COPIES_WITHIN = "shadow/within/"
"""+ seconds: copies that took no longer."""

_FINISHED = ("success", "failure", "error")


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything one process has counted since it started, at one moment."""

    process: float
    """When the process started, by its own clock: another number is another process, whose counters began at 0."""
    counters: Counters

    @property
    def possible(self) -> bool:
        """Whether a counter can read so."""
        return math.isfinite(self.process) and all(
            math.isfinite(value) and value >= 0.0 for value in self.counters.values()
        )


def between(before: Reading | None, now: Reading) -> Counters:
    """What one process counted between two readings.

    Empty where that cannot be known: the first reading, another process than before, a counter that is new or fell.
    Then `now` is a new beginning.
    """
    if before is None or before.process != now.process or before.counters.keys() != now.counters.keys():
        return {}
    more = {name: value - before.counters[name] for name, value in now.counters.items()}
    return {} if any(value < 0.0 for value in more.values()) else more


def total(parts: Sequence[Counters]) -> Counters:
    """All of them together."""
    names = {name for part in parts for name in part}
    return {name: math.fsum(part.get(name, 0.0) for part in parts) for name in names}


def finished(tally: Counters) -> float:
    """Episodes that ended by themselves."""
    return sum(tally.get(ENDED + outcome, 0.0) for outcome in _FINISHED)


def within(tally: Counters, seconds: float, family: str = WITHIN) -> float | None:
    """Requests that certainly took no longer than the first bucket bound from `seconds` on; None beyond the last.
    `family`: WITHIN, or COPIES_WITHIN for copies."""
    bounds = sorted(float(name.removeprefix(family)) for name in tally if name.startswith(family))
    found = next((bound for bound in bounds if seconds <= bound < math.inf), None)
    return None if found is None else tally[f"{family}{found!r}"]
