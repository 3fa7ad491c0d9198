"""Where the time goes that a change waits for its status: at the API server, in our queue, in our pass."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.operator.observer import Name

Span = tuple[float, float]
"""From the event of the change to the event of its status, by time.monotonic()."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass that wrote a status; moments by time.monotonic()."""

    marked: float
    free: float
    """When the pass before, over the same object, was over; `marked` where none was under way."""
    taken: float
    sent: float
    answered: float


class Trace:
    """What `bench.operator.traced` wrote down."""

    def __init__(self, file: Path) -> None:
        self._passes: defaultdict[Name, list[Pass]] = defaultdict(list)
        for line in file.read_bytes().splitlines():
            kind, namespace, name, *moments = orjson.loads(line)
            self._passes[kind, namespace, name].append(Pass(*moments))

    def shares(self, name: Name, span: Span) -> dict[str, float]:
        """Seconds of the wait by where they were spent; all but `queue_own_pass` add up to the whole of it.

        `told_late`: from the event at our observer until the operator had marked the object (the API server's watch,
        and Kopf); `queue`: until a worker took it; `queue_own_pass`: the part of that in which a pass over the same
        object was still under way, which no order can shorten; `pass`: until the status was sent (reads, children,
        data plane); `write`: until the API server had answered; `seen_late`: until the observer saw that status.
        """
        since, until = span
        mine = [item for item in self._passes.get(name, ()) if item.sent < until]
        if not mine:
            return {}
        last = max(mine, key=lambda item: item.sent)
        edges = [since]
        for moment in (last.marked, last.taken, last.sent, last.answered, until):
            edges.append(min(max(moment, edges[-1]), until))
        words = ("told_late", "queue", "pass", "write", "seen_late")
        shares = {word: round(edges[i + 1] - edges[i], 3) for i, word in enumerate(words)}
        return {**shares, "queue_own_pass": round(min(max(last.free, edges[1]), edges[2]) - edges[1], 3)}


def longest(spans: Mapping[Name, Span], trace: Trace | None, title: str) -> dict[str, float]:
    """`<title>_s`, the longest of the waits, and `<title>_<share>_s` where the operator was traced; 0 without any."""
    if not spans:
        return {f"{title}_s": 0.0}
    name = max(spans, key=lambda item: spans[item][1] - spans[item][0])
    shares = trace.shares(name, spans[name]) if trace else {}
    total = round(spans[name][1] - spans[name][0], 3)
    return {f"{title}_s": total, **{f"{title}_{word}_s": seconds for word, seconds in shares.items()}}
