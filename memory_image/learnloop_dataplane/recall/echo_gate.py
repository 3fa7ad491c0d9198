"""What agents were shown within the hour: text that comes back to be stored is an echo, and is not stored again.

The gate before what consolidation finds later by the same rule (`lifecycle.duplicates.echoes`): this process knows
only the recalls that it answered itself since it started. Texts are read when the agent next stores something, so that
a recall pays next to nothing.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from learnloop_dataplane.text.redundancy import Print, Shown, details, print_of, said
from learnloop_dataplane.text.tokenizer import text_of

WITHIN_SECONDS = 3600.0
AGENTS, MEMORIES = 256, 128  # the latest: of a process, and of each of its agents
MOST_BYTES = 4 * 2**20  # of texts that were not taken apart yet; agents that were answered last keep theirs


@dataclass(slots=True)
class _Seen:
    """One agent's. `fresh`: shown and not read yet; by id: when it was shown, its print, and hashes of what it says
    beside its text."""

    fresh: dict[UUID, tuple[float, str | bytes]] = field(default_factory=dict)
    size: int = 0
    shown: dict[UUID, float] = field(default_factory=dict)
    prints: dict[UUID, Print | None] = field(default_factory=dict)
    details: dict[UUID, frozenset[int]] = field(default_factory=dict)


class RecentlyShown:
    """Of the agents that this process answered last.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._agents: OrderedDict[tuple[str, str], _Seen] = OrderedDict()
        self._size = 0  # of all of theirs

    def add(self, namespace: str, agent: str, memories: Iterable[tuple[UUID, str | bytes]]) -> None:
        """These memories (id and content as JSON) were shown to the agent just now."""
        seen = self._agents.setdefault((namespace, agent), _Seen())
        self._agents.move_to_end((namespace, agent))
        now = self._clock()
        before = seen.size
        for identity, content in memories:
            if identity not in seen.fresh:
                seen.size += len(content)
            seen.fresh[identity] = now, content
        while len(seen.fresh) > MEMORIES:
            seen.size -= len(seen.fresh.pop(next(iter(seen.fresh)))[1])
        self._size += seen.size - before
        while len(self._agents) > AGENTS or (self._size > MOST_BYTES and len(self._agents) > 1):
            self._size -= self._agents.popitem(last=False)[1].size

    def source_of(self, namespace: str, agent: str, content: dict[str, Any]) -> UUID | None:
        """The shown memory that this content repeats; None when it says anything else, or has other fields."""
        seen = self._agents.get((namespace, agent))
        if seen is None:
            return None
        self._size -= seen.size
        _read(seen, self._clock())
        more = _details(content)
        sources = Shown(seen.prints.items()).sources(
            said(text_of(content)), lambda keys: next((key for key in keys if seen.details[key] >= more), None)
        )
        return sources[0] if sources else None


def _read(seen: _Seen, now: float) -> None:
    """Brings it up to date: with what was shown since, without what is older than an hour."""
    for identity, (at, content) in seen.fresh.items():
        if identity not in seen.shown:
            memory = orjson.loads(content)
            seen.prints[identity] = print_of(said(text_of(memory)))
            seen.details[identity] = _details(memory)
        seen.shown[identity] = at
    seen.fresh.clear()
    seen.size = 0
    latest = sorted(seen.shown, key=seen.shown.__getitem__)[-MEMORIES:]
    recent = {identity: seen.shown[identity] for identity in latest if now - seen.shown[identity] <= WITHIN_SECONDS}
    if len(recent) < len(seen.shown):
        seen.shown = recent
        seen.prints = {identity: seen.prints[identity] for identity in recent}
        seen.details = {identity: seen.details[identity] for identity in recent}


def _details(content: dict[str, Any]) -> frozenset[int]:
    return frozenset(map(hash, details(content)))
