"""Background work that never ends, and a log of recalls that loses nothing it could have written."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from learnloop_dataplane.concurrency.background_tasks import AWAY_SECONDS, FAILED_SECONDS, Background
from learnloop_dataplane.concurrency.namespace_rounds import Rounds
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.recall import recall_log
from learnloop_dataplane.recall.recall_log import Recalled, RecallLog


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
    seen = []

    async def step(namespace: str) -> int:
        seen.append(namespace)
        raise {"a": Unavailable("PostgreSQL"), "b": ValueError("bad row")}[namespace]

    for namespace in ("a", "b"):
        await background.attempt(step, namespace)
    assert seen == ["a", "b"]
    assert metrics.registry.get_sample_value("learnloop_background_failures_total", {"work": "a namespace"}) == 1


async def test_a_busy_namespace_does_not_put_off_the_round_over_all_of_them() -> None:
    now, answers = 0.0, [Unavailable("PostgreSQL")]

    async def everywhere() -> list[str]:
        if answers:
            raise answers.pop()
        return ["a", "b", "busy"]

    rounds = Rounds(everywhere, 60.0, lambda: now)
    rounds.changed("busy")
    with pytest.raises(Unavailable):
        await rounds.next()
    assert await rounds.next() == ["busy", "a", "b"], "what was to be done when PostgreSQL was away still is"
    seen = []
    for second in range(1, 121):
        now = float(second)
        rounds.changed("busy")
        seen.append(await rounds.next())
    assert [index + 1 for index, found in enumerate(seen) if found == ["busy", "a", "b"]] == [60, 120]
    assert all(found == ["busy"] for index, found in enumerate(seen, 1) if index % 60)


def recalled(number: int) -> Recalled:
    when = datetime(2026, 1, 31, tzinfo=UTC)
    return Recalled(UUID(int=number), "walker", "static", 1, bytes(15) + b"\x01", b"", (1.0,), when)


class Refusing:
    """Where a database would be that says what `judge` raises: no real one fails with everything it could."""

    def __init__(self, judge: Callable[[str, list[UUID]], None]) -> None:
        self._judge = judge
        self.written: list[tuple[str, int]] = []

    async def fetch_as(self, namespace: str, statement: str, ids: list[UUID], *rest: Any) -> list[Any]:
        self._judge(namespace, ids)
        self.written += [(namespace, identity.int) for identity in ids]
        return []

    def tenant(self, namespace: str) -> Any:
        raise Unavailable("PostgreSQL")


@pytest.mark.parametrize("error", [Unavailable("PostgreSQL"), asyncpg.UndefinedTableError("gone"), ValueError("?")])
async def test_a_flush_that_fails_half_way_loses_nothing_and_keeps_the_order(error: Exception) -> None:
    broken = True

    def judge(namespace: str, ids: list[UUID]) -> None:
        if broken and namespace == "a" and ids[0].int >= recall_log.TOGETHER:
            raise error

    db = Refusing(judge)
    kept = RecallLog(db)  # type: ignore[arg-type]
    for number in range(200):
        kept.add("a", recalled(number))
        kept.add("b", recalled(number))
    try:
        await kept.write()
    except type(error):
        assert not isinstance(error, Unavailable)
    assert sum(namespace == "b" for namespace, _ in db.written) == 200, "one namespace's trouble is its own"
    kept.add("a", recalled(200))
    broken = False
    await kept.write()
    assert [number for namespace, number in db.written if namespace == "a"] == list(range(201))


async def test_a_recall_that_can_never_be_logged_is_left_out_and_those_beside_it_are_not() -> None:
    def judge(namespace: str, ids: list[UUID]) -> None:
        if UUID(int=77) in ids:
            raise asyncpg.CharacterNotInRepertoireError("no such character")

    db = Refusing(judge)
    kept = RecallLog(db)  # type: ignore[arg-type]
    for number in range(100):
        kept.add("a", recalled(number))
    await kept.write()
    assert [number for _, number in db.written] == [number for number in range(100) if number != 77]


async def test_a_long_outage_costs_the_oldest_recalls_of_whoever_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall_log, "MAX_WAITING", 100)
    away = True

    def judge(namespace: str, ids: list[UUID]) -> None:
        if away:
            raise Unavailable("PostgreSQL")

    db = Refusing(judge)
    kept = RecallLog(db)  # type: ignore[arg-type]
    flushing: list[Awaitable[None]] = [kept.write() for _ in range(3)]
    for number in range(10):
        kept.add("quiet", recalled(number))
    for number in range(300):
        kept.add("loud", recalled(number))
        if number % 100 == 99:
            await flushing.pop()
    away = False
    await kept.write()
    assert [number for namespace, number in db.written if namespace == "quiet"] == list(range(10))
    assert [number for namespace, number in db.written if namespace == "loud"] == list(range(210, 300))
