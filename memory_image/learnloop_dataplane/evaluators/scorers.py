"""The reward models in use: each in a process of its own, all of them together within the container's memory.

A namespace has one question in flight. What one tenant's model does holds up that tenant alone: the others wait for a
place at most, and a process that is idle makes place.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol
from weakref import WeakValueDictionary

from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.evaluators import scorer_room
from learnloop_dataplane.evaluators.scorer_client import Ended, Scorer

MOST_BYTES = 128 * 2**20
"""Of one model; a larger one is not used."""
MOST_PROCESSES = 4
PLACE_SECONDS = 5.0
LOAD_SECONDS = 60.0
SCORE_SECONDS = 15.0
REMEMBER_SECONDS = 60.0
"""That a model could not be used: its file is not fetched again for each episode."""
MOST_REMEMBERED = 1000


class File(Protocol):
    """An artifact that is about to be read."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """What is in it, once."""


Fetch = Callable[[str, str, int], Awaitable[File]]
"""A namespace's artifact by digest, of at most so many bytes. Raises ApiError: there is none, or it is larger."""
Key = tuple[str, str]


class NoScore(Exception):
    """There is no score of this answer, ever; one sentence says why: the file is no reward model, or cannot do it."""


class NoScoreYet(Unavailable):
    """There is no score now; one sentence says why. The same question may be answered later."""

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        ApiError.__init__(self, 503, message, retry_after=retry_after)


class Scorers:
    """Of all namespaces. A namespace sees its own artifacts alone, and two namespaces never share a process.

    Args:
        fetch: what reads artifacts.
        room: bytes of memory for all processes together, at this moment.
    """

    def __init__(self, fetch: Fetch, room: Callable[[], int] = scorer_room.left) -> None:
        self._fetch, self._room = fetch, room
        # The least recently used first. All of this is changed between two awaits, so that no lock is needed for it.
        self._alive: OrderedDict[Key, Scorer] = OrderedDict()
        self._taken: dict[Key, int] = {}
        self._busy: set[Key] = set()
        self._freed = asyncio.Event()
        self._known: OrderedDict[Key, tuple[float, NoScore | NoScoreYet]] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def score(self, namespace: str, sha256: str, question: str, answer: str) -> float:
        """What the model with this digest makes of an answer, 0 to 1. One answer of a namespace at a time.

        Raises:
            NoScore: the model cannot be used, or not for this answer.
            Unavailable: the model gives no score now; ask again later.
        """
        key = (namespace, sha256)
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with turn:
            known = self._known.get(key)
            if known is not None and time.monotonic() - known[0] < REMEMBER_SECONDS:
                raise known[1].with_traceback(None)
            self._busy.add(key)
            try:
                scorer = await self._scorer(key)
                found = await scorer.ask(question, answer, SCORE_SECONDS)
            except Ended as error:  # of this question: it says nothing about the next one
                raise NoScoreYet(f"reward model {sha256[:12]}: {error}") from None
            finally:
                self._idle(key)
        value = found.get("score")
        if not isinstance(value, float):
            raise NoScore(str(found.get("refused", "the reward model gave no score")))
        return min(1.0, max(0.0, value))

    async def close(self) -> None:
        """Ends all processes."""
        for scorer in list(self._alive.values()):
            await scorer.end()

    async def _scorer(self, key: Key) -> Scorer:
        found = self._alive.get(key)
        if found is not None and found.usable:
            self._alive.move_to_end(key)
            return found
        self._forget(key)
        name = f"reward model {key[1][:12]}"
        try:
            content = await self._fetch(*key, MOST_BYTES)
        except ApiError as error:
            # Too large it stays; one that is missing may be uploaded yet.
            if error.status == 413:
                raise self._remembered(key, NoScore(f"{name}: {error.message}")) from None
            if error.status == 404:
                raise self._remembered(key, NoScoreYet(f"{name}: {error.message}")) from None
            raise
        await self._place(key, scorer_room.needed(content.size), name)
        try:
            scorer = self._alive[key] = await Scorer.start(self._taken[key])
            ready = await scorer.load(content.size, content.chunks, LOAD_SECONDS)
        except Ended as error:
            raise self._remembered(key, NoScoreYet(f"{name}: {error}")) from None
        except OSError as error:
            raise NoScoreYet(f"{name}: no process can be started ({error.strerror})") from None
        if not ready.get("ready"):
            await scorer.end()
            raise self._remembered(key, NoScore(f"{name} cannot be used: {ready.get('refused', 'it says nothing')}"))
        return scorer

    async def _place(self, key: Key, need: int, name: str) -> None:
        """Takes a place among the processes, an idle one's if there is no other.

        Raises:
            NoScoreYet: it never fits this container's memory, or all places are in use.
        """
        room = self._room()
        if need > room:
            told = (
                f"{name} needs {need >> 20} MiB of memory, and the memory limit of the data plane's pod leaves "
                f"{max(0, room) >> 20} MiB: raise dataPlane.resources.limits.memory, or train a smaller model"
            )
            raise self._remembered(key, NoScoreYet(told))
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                while (gone := self._made_way(key, need, room)) is None:
                    await self._freed.wait()
        except TimeoutError:
            raise NoScoreYet(f"{name}: other reward models are in use, and its turn has not come") from None
        for scorer in gone:
            scorer.kill()
        for scorer in gone:
            await scorer.end()

    def _made_way(self, key: Key, need: int, room: int) -> list[Scorer] | None:
        """Takes the place and answers who has to go for it, all of them idle. None: there is none, nothing was done."""
        stay = dict(self._taken)
        idle = [other for other in self._alive if other not in self._busy]
        gone: list[Key] = []
        while len(stay) >= MOST_PROCESSES or sum(stay.values()) + need > room:
            if len(gone) == len(idle):
                return None
            gone.append(idle[len(gone)])
            del stay[gone[-1]]
        self._taken = stay | {key: need}
        return [self._alive.pop(other) for other in gone]

    def _idle(self, key: Key) -> None:
        """The end of a question. A process that is of no use any more gives up its place."""
        self._busy.discard(key)
        scorer = self._alive.get(key)
        if scorer is None or not scorer.usable:
            self._forget(key)
        self._freed.set()
        self._freed = asyncio.Event()

    def _forget(self, key: Key) -> None:
        self._alive.pop(key, None)
        self._taken.pop(key, None)

    def _remembered(self, key: Key, why: NoScore | NoScoreYet) -> NoScore | NoScoreYet:
        self._known[key] = (time.monotonic(), why)
        self._known.move_to_end(key)
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return why
