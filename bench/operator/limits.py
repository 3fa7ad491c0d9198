"""No part of the benchmark may keep the others waiting forever."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SECONDS: Mapping[str, int] = {
    "ours": 720,
    "peer": 300,
    "writes": 140,
    "failover": 300,
}
"""The time limit of a part, starting and stopping its API server included: half as long again as on two quiet cores, or
more. `--patience` stretches it."""


class OutOfTime(SystemExit):
    """A part took too long. An exit, for these alone end an event loop from whichever of its tasks they come up in."""


@contextmanager
def limited(part: str, factor: float = 1.0) -> Iterator[None]:
    """The body may take `factor` times the seconds of its part.

    Raises:
        OutOfTime: it took longer. What the body has opened is closed on the way out, as after SIGTERM.
    """
    seconds = round(SECONDS[part] * factor)

    def late(*_: object) -> None:
        raise OutOfTime(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
