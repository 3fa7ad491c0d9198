"""What agents were shown within the hour: text that comes back to be stored is an echo, and is not stored again.

The gate before what consolidation finds later by the same rule (`life.duplicates.echoes`): this process knows only the
recalls that it answered itself since it started. Of texts only hashes of their three-word runs are kept, and those are
made when the agent next stores something, so that a recall pays next to nothing.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from learnloop_memory.memory.text import text_of, words

WITHIN_SECONDS = 3600.0
ECHOED = 0.8  # of its runs, a memory took from what was shown
SHORTEST = 6  # words; shorter texts repeat by chance
AGENTS, MEMORIES = 256, 128  # the latest: of a process, and of each of its agents


@dataclass(slots=True)
class _Seen:
    """One agent's. `fresh`: shown and not taken apart yet; `shown`: when, by id; `runs`: who had them last."""

    fresh: dict[UUID, tuple[float, str | bytes]] = field(default_factory=dict)
    shown: dict[UUID, float] = field(default_factory=dict)
    runs: dict[int, UUID] = field(default_factory=dict)


class Shown:
    """Of the agents that this process answered last.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._agents: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def add(self, namespace: str, agent: str, memories: Iterable[tuple[UUID, str | bytes]]) -> None:
        """These memories (id and content as JSON) were shown to the agent just now."""
        seen = self._agents.setdefault((namespace, agent), _Seen())
        self._agents.move_to_end((namespace, agent))
        now = self._clock()
        for identity, content in memories:
            seen.fresh[identity] = now, content
        while len(seen.fresh) > MEMORIES:
            del seen.fresh[next(iter(seen.fresh))]
        if len(self._agents) > AGENTS:
            self._agents.popitem(last=False)

    def source_of(self, namespace: str, agent: str, content: dict[str, Any]) -> UUID | None:
        """The shown memory that most of this content comes from; None when four fifths of it were not shown."""
        seen = self._agents.get((namespace, agent))
        if seen is None:
            return None
        _take_apart(seen, self._clock())
        asked = _runs(text_of(content))
        if len(asked) + 2 < SHORTEST:
            return None
        sources = [seen.runs[run] for run in asked if run in seen.runs]
        return max(set(sources), key=sources.count) if len(sources) >= ECHOED * len(asked) else None


def _take_apart(seen: _Seen, now: float) -> None:
    """Brings `runs` up to date: what was shown since is in it, what is older than an hour is not."""
    for identity, (at, content) in seen.fresh.items():
        if identity not in seen.shown:
            seen.runs |= dict.fromkeys(_runs(text_of(orjson.loads(content))), identity)
        seen.shown[identity] = at
    seen.fresh.clear()
    latest = sorted(seen.shown, key=seen.shown.__getitem__)[-MEMORIES:]
    kept = {identity: seen.shown[identity] for identity in latest if now - seen.shown[identity] <= WITHIN_SECONDS}
    if len(kept) < len(seen.shown):
        seen.shown = kept
        seen.runs = {run: identity for run, identity in seen.runs.items() if identity in kept}


def _runs(text: str) -> set[int]:
    tokens = words(text)
    return {hash(run) for run in zip(tokens, tokens[1:], tokens[2:], strict=False)}
