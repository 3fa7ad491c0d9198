"""Nobody is starved: bounds of the queue, in turns and whatever anybody does, against a model of who waits."""

from collections.abc import Coroutine
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from learnloop_operator.controllers.queue.dirty_queue import BACKGROUND_SHARE, PATIENCE_SECONDS, DirtyQueue
from learnloop_operator.controllers.queue.fair_order import CYCLE
from learnloop_operator.controllers.queue.object_key import ObjectKey

NAMESPACES, KINDS = 6, ("RewardPolicy", "TrainingJob")
KEYS = st.builds(
    ObjectKey, st.sampled_from(KINDS), st.integers(0, NAMESPACES - 1).map(lambda i: f"ns-{i}"), st.sampled_from("abcd")
)


def takes_for(turns: int) -> int:
    """How many takes have so many turns of the news among them, when every BACKGROUND_SHARE-th is the background's."""
    return next(takes for takes in count() if takes - -(-takes // BACKGROUND_SHARE) >= turns)


class Nobody(RuleBasedStateMachine):
    """Marks, takes and time in any order; `news` and `background` are who waits, the oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.takes = 0.0, 0
        self.queue = DirtyQueue(lambda: self.now)
        self.news: dict[ObjectKey, tuple[int, int]] = {}
        """At which take it came, and how many were there before it."""
        self.background: dict[ObjectKey, float] = {}
        self.first: dict[ObjectKey, None] = {}
        """What goes before everything, in order; takes of it are no takes to anybody else."""
        self.busy: dict[ObjectKey, bool | None] = {}
        """Under way; what was marked meanwhile, and whether that was news."""
        self.waiting: dict[str, int] = {}
        """Namespaces with news, and the take since which they wait for a turn."""

    @rule(key=KEYS, urgent=st.booleans())
    def mark(self, key: ObjectKey, urgent: bool) -> None:
        """Anybody, anything."""
        self.queue.mark(key, urgent)
        self._marked(key, urgent)

    @rule(key=KEYS)
    def breach(self, key: ObjectKey) -> None:
        """It waits already, or a pass over it is under way, or neither."""
        self.queue.mark_first(key)
        self._marked(key, True)
        self.first.setdefault(key)

    @precondition(lambda self: self._at_once())
    @rule()
    def begin_quiet(self) -> None:
        """A worker is free who takes only what is quiet or first."""
        self._take(self.queue.take_quiet())

    @rule(namespace=st.integers(0, NAMESPACES - 1), urgent=st.booleans(), size=st.integers(5, 40))
    def flood(self, namespace: int, urgent: bool, size: int) -> None:
        """Many objects of one namespace."""
        for number in range(size):
            self.mark(ObjectKey(KINDS[number % 2], f"ns-{namespace}", f"flood-{number}"), urgent)

    @rule(seconds=st.sampled_from([0.1, 1.0, PATIENCE_SECONDS / 2, PATIENCE_SECONDS]))
    def wait(self, seconds: float) -> None:
        """Quiet, patience and age are a matter of time."""
        self.now += seconds

    @rule(takes=st.integers(1, 60))
    def work(self, takes: int) -> None:
        """One worker, without a rest."""
        for _ in range(takes):
            if self.news or self.background:
                self.done(self._take())

    @precondition(lambda self: self.news or self.background)
    @rule()
    def begin(self) -> None:
        """A pass that takes longer."""
        self._take()

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        """Any of those under way."""
        self.done(data.draw(st.sampled_from(sorted(self.busy))))

    def done(self, key: ObjectKey) -> None:
        """What was marked during the pass waits from here on."""
        self.queue.done(key)
        again = self.busy.pop(key)
        if again is not None:
            self._marked(key, again)

    @invariant()
    def everyone_is_there(self) -> None:
        """Marked is marked, once."""
        again = sum(mark is not None for mark in self.busy.values())
        assert len(self.queue) == len(self.news) + len(self.background) + again

    def teardown(self) -> None:
        """What waits is worked off, each object exactly once, and each within its bound."""
        for key in tuple(self.busy):
            self.done(key)
        left = len(self.news) + len(self.background)
        assert len({self._take() for _ in range(left)}) == left
        assert len(self.queue) == 0

    def _at_once(self) -> ObjectKey | None:
        return next((key for key in self.first if key in self.news), None)

    def _take(self, take: Coroutine[Any, Any, ObjectKey] | None = None) -> ObjectKey:
        take = take or self.queue.take()
        first = self._at_once()
        if first is not None:
            assert taken(take) == first, "whatever waits, for however long"
            assert self.queue.standing(first).first, "its requests go first, too"
            self._begun(first)
            return first
        for key in [key for key, since in self.background.items() if self.now - since >= PATIENCE_SECONDS]:
            del self.background[key]
            self._news(key)
        self.takes += 1
        key = taken(take)
        assert key not in self.busy, "never two passes over one object at a time"
        if key in self.news:
            came, before = self.news[key]
            assert self.takes - came <= takes_for(CYCLE * (before + 1)), (
                "it waits for those before it, whoever they are"
            )
            assert self.takes - self.waiting[key.namespace] <= takes_for(2 * NAMESPACES), (
                "a namespace waits for one turn of each other one"
            )
            self.waiting[key.namespace] = self.takes
        else:
            assert self.takes % BACKGROUND_SHARE == 0 or not self.news, "news goes first"
            del self.background[key]
        self._begun(key)
        return key

    def _begun(self, key: ObjectKey) -> None:
        self.news.pop(key, None)
        self.first.pop(key, None)
        if not any(other.namespace == key.namespace for other in self.news):
            self.waiting.pop(key.namespace, None)
        self.busy[key] = None

    def _marked(self, key: ObjectKey, urgent: bool) -> None:
        if key in self.busy:
            self.busy[key] = urgent or bool(self.busy[key])
        elif urgent and key not in self.news:
            self.background.pop(key, None)
            self._news(key)
        elif key not in self.news:
            self.background.setdefault(key, self.now)

    def _news(self, key: ObjectKey) -> None:
        self.news[key] = (self.takes, len(self.news))
        self.waiting.setdefault(key.namespace, self.takes)


def taken(take: Coroutine[Any, Any, ObjectKey]) -> ObjectKey:
    """What the take gives, without an event loop: something waits, so it does not."""
    try:
        take.send(None)
    except StopIteration as end:
        key: ObjectKey = end.value
        return key
    raise AssertionError("the queue is empty for those who take")


Nobody.TestCase.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=40)
TestNobodyIsStarved = Nobody.TestCase
