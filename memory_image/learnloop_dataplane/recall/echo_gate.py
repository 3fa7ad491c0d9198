"""What agents were shown within the hour: text that comes back to be stored is an echo, and is not stored again.

The gate before what consolidation finds later by the same rule (`lifecycle.duplicates.echoes`): this process knows
only the recalls that it answered itself since it started. Of texts only hashes of their three-word runs are kept, and
those are made when the agent next stores something, so that a recall pays next to nothing.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from learnloop_dataplane.text.redundancy import ECHOED, SHORTEST_ECHO, details, edited
from learnloop_dataplane.text.tokenizer import text_of, words

WITHIN_SECONDS = 3600.0
AGENTS, MEMORIES = 256, 128  # the latest: of a process, and of each of its agents
MOST_BYTES = 4 * 2**20  # of texts that were not taken apart yet; agents that were answered last keep theirs


@dataclass(slots=True)
class _Seen:
    """One agent's. `fresh`: shown and not taken apart yet; `shown`: when, by id; `runs`: who had them last; `details`:
    what these memories say beside their texts, hashed."""

    fresh: dict[UUID, tuple[float, str | bytes]] = field(default_factory=dict)
    size: int = 0
    shown: dict[UUID, float] = field(default_factory=dict)
    runs: dict[int, UUID] = field(default_factory=dict)
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
        """The shown memory that most of this content comes from; None when a fifth of it was not shown, or it changes
        or adds to what was."""
        seen = self._agents.get((namespace, agent))
        if seen is None:
            return None
        self._size -= seen.size
        _take_apart(seen, self._clock())
        tokens = words(text_of(content))
        if len(tokens) < SHORTEST_ECHO:
            return None
        sources = [seen.runs.get(run) for run in _runs(tokens)]
        known = Counter(source for source in sources if source is not None)
        if known.total() < ECHOED * len(sources) or edited(tokens, sources):
            return None
        source = known.most_common(1)[0][0]
        return source if seen.details[source] >= _details(content) else None


def _take_apart(seen: _Seen, now: float) -> None:
    """Brings `runs` up to date: what was shown since is in it, what is older than an hour is not."""
    for identity, (at, content) in seen.fresh.items():
        if identity not in seen.shown:
            told = orjson.loads(content)
            seen.runs |= dict.fromkeys(_runs(words(text_of(told))), identity)
            seen.details[identity] = _details(told)
        seen.shown[identity] = at
    seen.fresh.clear()
    seen.size = 0
    latest = sorted(seen.shown, key=seen.shown.__getitem__)[-MEMORIES:]
    kept = {identity: seen.shown[identity] for identity in latest if now - seen.shown[identity] <= WITHIN_SECONDS}
    if len(kept) < len(seen.shown):
        seen.shown = kept
        seen.runs = {run: identity for run, identity in seen.runs.items() if identity in kept}
        seen.details = {identity: said for identity, said in seen.details.items() if identity in kept}


def _runs(tokens: list[str]) -> list[int]:
    return [hash(run) for run in zip(tokens, tokens[1:], tokens[2:], strict=False)]


def _details(content: dict[str, Any]) -> frozenset[int]:
    return frozenset(map(hash, details(content)))
