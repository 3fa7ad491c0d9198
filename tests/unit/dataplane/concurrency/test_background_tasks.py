"""Background work that never ends, and a log of recalls that loses nothing it could have written."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from learnloop_dataplane.concurrency.background_loop import AWAY_SECONDS, FAILED_SECONDS, TURN, Background, Work
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.recall import recall
from learnloop_dataplane.recall.recall import Recalled, RecallLog


class Naps:
    """Remembers how long somebody wanted to sleep, and lets the others have a turn."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


async def repeated(outcomes: list[BaseException | None]) -> tuple[Background, Metrics, list[float]]:
    """A work with these passes, after the last of them; with how long it paused."""
    metrics, naps, done = Metrics(), Naps(), asyncio.Event()
    ready = asyncio.Event()
    ready.set()
    background = Background(metrics, ready, naps)
    left = list(outcomes)

    async def one_pass() -> None:
        if not left:
            done.set()
            await asyncio.Event().wait()
        if (outcome := left.pop(0)) is not None:
            raise outcome

    background.repeat(one_pass, "counting", pause=0.5)
    await done.wait()
    return background, metrics, naps.seconds


def failures(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("learnloop_background_failures_total", {"work": "counting"}) or 0.0


async def test_whatever_a_pass_raises_the_next_one_follows() -> None:
    bad = [ValueError("x"), asyncpg.InsufficientPrivilegeError("x"), asyncio.CancelledError(), KeyError("x")]
    background, metrics, pauses = await repeated([None, *bad, None, RuntimeError("again")])
    assert failures(metrics) == 5
    assert pauses == [0.5, 0.25, 0.5, 1.0, 2.0, 0.5, 0.25], (
        "further and further apart, and from the start after success"
    )
    assert background.failing == {"counting": "RuntimeError"}
    await background.close()


async def test_a_store_that_is_away_is_asked_often_and_is_no_failure_of_the_work() -> None:
    background, metrics, pauses = await repeated([Unavailable("PostgreSQL")] * 8)
    assert (failures(metrics), background.failing, max(pauses)) == (0, {}, AWAY_SECONDS)
    await background.close()
    background, metrics, pauses = await repeated([OSError("no")] * 10 + [None])
    assert (failures(metrics), background.failing, max(pauses)) == (10, {}, FAILED_SECONDS)
    await background.close()


async def test_work_ends_when_it_is_told_to_and_one_namespace_stops_no_other() -> None:
    background, metrics, _ = await repeated([])
    await background.close()
    times = []

    async def step(namespace: str) -> int:
        times.append(namespace)
        raise {"a": Unavailable("PostgreSQL"), "b": ValueError("bad row")}[namespace]

    for namespace in ("a", "b"):
        await background.attempt(step, namespace)
    assert times == ["a", "b"]
    assert metrics.registry.get_sample_value("learnloop_background_failures_total", {"work": "a namespace"}) == 1


class Namespaces:
    """So many rows to do in each namespace; a turn does `TURN` at most."""

    def __init__(self, **rows: int) -> None:
        self.rows, self.turns = rows, list[str]()
        self.away = 0

    async def names(self) -> list[str]:
        if self.away:
            self.away -= 1
            raise Unavailable("PostgreSQL")
        return list(self.rows)

    async def turn(self, namespace: str) -> int:
        self.turns.append(namespace)
        await asyncio.sleep(0)
        done = min(self.rows[namespace], TURN)
        self.rows[namespace] -= done
        return done


async def passes(work: Work, many: int) -> None:
    for _ in range(many):
        await work.one_pass()
        await asyncio.sleep(0.001)


async def test_each_namespace_has_a_turn_before_any_has_a_second_and_a_new_one_comes_in_between() -> None:
    some = Namespaces(a=3 * TURN, b=1, c=2 * TURN)
    work = Work(some.turn, some.names, every=60.0)
    await passes(work, 3)
    assert some.turns == ["a", "b", "c"]
    some.rows["new"] = 1
    work.changed("new")
    await passes(work, 5)
    assert some.turns[3:] == ["a", "c", "new", "a", "c"] or some.turns[3:] == ["a", "new", "c", "a", "c"]
    assert some.rows["a"] == some.rows["c"] == 0


async def test_a_busy_namespace_does_not_put_off_the_round_over_all_of_them() -> None:
    now = 0.0
    some = Namespaces(a=0, b=0, busy=0)
    some.away = 1
    work = Work(some.turn, some.names, every=60.0, clock=lambda: now)
    work.changed("busy")
    with pytest.raises(Unavailable):
        await work.one_pass()
    await passes(work, 3)
    assert some.turns == ["busy", "a", "b"], "what was to be done when PostgreSQL was away still is"
    some.turns.clear()
    for second in range(1, 61):
        now = float(second)
        work.changed("busy")
        await passes(work, 1)
    await passes(work, 2)
    assert (some.turns.count("busy"), sorted(set(some.turns))) == (60, ["a", "b", "busy"])


async def test_a_namespace_has_one_turn_at_a_time_and_a_slow_one_delays_no_other() -> None:
    stuck, begun = asyncio.Event(), list[str]()

    async def turn(namespace: str) -> int:
        begun.append(namespace)
        await (stuck.wait() if namespace == "slow" else asyncio.sleep(0))
        return 0

    async def names() -> list[str]:
        return ["slow", "a", "b"]

    work = Work(turn, names, every=60.0, at_once=2)
    work.changed("slow")
    for _ in range(3):
        await passes(work, 1)
        work.changed("slow")
    assert begun == ["slow", "a", "b"]
    stuck.set()
    await passes(work, 2)
    assert begun.count("slow") == 2
    await work.close()


def recalled(number: int) -> Recalled:
    when = datetime(2026, 1, 31, tzinfo=UTC)
    return Recalled(UUID(int=number), "walker", (UUID(int=1),), when)


class Refusing:
    """Stands for a database that raises what `judge` does: no real one fails with everything it could."""

    def __init__(self, judge: Callable[[str, list[UUID]], None]) -> None:
        self._judge = judge
        self.written: list[tuple[str, int]] = []

    @asynccontextmanager
    async def tenant(self, _: str) -> AsyncIterator:
        yield self

    async def execute(self, statement: str, namespace: str, ids: list[UUID], *rest) -> None:
        if "recall_log" in statement:
            self._judge(namespace, ids)
            self.written += [(namespace, identity.int) for identity in ids]


@pytest.mark.parametrize("error", [Unavailable("PostgreSQL"), asyncpg.UndefinedTableError("gone"), ValueError("?")])
async def test_a_flush_that_fails_half_way_loses_nothing_and_keeps_the_order(error: Exception) -> None:
    broken = True

    def judge(namespace: str, ids: list[UUID]) -> None:
        if broken and namespace == "a" and ids[0].int >= recall.TOGETHER:
            raise error

    db = Refusing(judge)
    waiting = RecallLog(db)
    for number in range(200):
        waiting.add("a", recalled(number))
        waiting.add("b", recalled(number))
    with pytest.raises(type(error)):
        await waiting.write()
    assert sum(namespace == "b" for namespace, _ in db.written) == 200, "one namespace's trouble is its own"
    waiting.add("a", recalled(200))
    broken = False
    await waiting.write()
    assert [number for namespace, number in db.written if namespace == "a"] == list(range(201))


async def test_a_long_outage_costs_the_newest_recalls_of_a_busy_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "MAX_WAITING", 100)
    away = True

    def judge(namespace: str, ids: list[UUID]) -> None:
        if away:
            raise Unavailable("PostgreSQL")

    db = Refusing(judge)
    waiting = RecallLog(db)
    for number in range(300):
        waiting.add("loud", recalled(number))
        if number % 100 == 99:
            await waiting.flush()
    for number in range(10):
        waiting.add("quiet", recalled(number))
    away = False
    await waiting.write()
    assert [number for namespace, number in db.written if namespace == "quiet"] == list(range(10))
    assert [number for namespace, number in db.written if namespace == "loud"] == list(range(100))
