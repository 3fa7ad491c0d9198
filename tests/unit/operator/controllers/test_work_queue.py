"""The queue of objects that want a pass."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from learnloop_operator.reconcile.work_queue import ObjectKey, WorkQueue

A, B = ObjectKey("TrainingJob", "ns", "a"), ObjectKey("TrainingJob", "ns", "b")


async def test_what_is_marked_during_a_pass_gets_another_one_after_it() -> None:
    queue = WorkQueue()
    queue.mark(A)
    await queue.take()
    queue.mark(A)
    queue.mark(B)
    assert await queue.take() == B, "never two passes over one object at a time"
    queue.done(A)
    assert await queue.take() == A


async def test_an_earlier_timer_wins_and_an_event_overtakes_it() -> None:
    queue = WorkQueue()
    queue.mark_later(A, 0.01)
    queue.mark_later(A, 60.0)
    async with asyncio.timeout(50):  # sooner than the later timer, however slow the machine
        assert await queue.take() == A
    queue.done(A)
    queue.mark_later(A, 60.0)
    queue.mark(A)
    assert len(queue) == 1
    queue.close()


async def test_coming_back_again_and_again_gets_nobody_ahead_of_a_full_round() -> None:
    queue = WorkQueue()
    for number in range(1000):
        queue.mark(ObjectKey("TrainingJob", f"team-{number % 10}", f"t-{number}"))
    pushy, taken = ObjectKey("TrainingJob", "pushy", "t"), []
    for _ in range(110):
        queue.mark(pushy)
        taken.append(await queue.take())
        queue.done(taken[-1])
    assert 5 <= taken.count(pushy) <= 10, "at most one turn in each round of eleven namespaces"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=60))
async def test_each_key_is_taken_once_and_each_waiting_namespace_once_in_a_round(marks: list[tuple[int, int]]) -> None:
    queue, keys = WorkQueue(), {ObjectKey("TrainingJob", f"team-{team}", f"t-{name}") for team, name in marks}
    for team, name in marks:
        queue.mark(ObjectKey("TrainingJob", f"team-{team}", f"t-{name}"))
    assert len(queue) == len(keys)
    taken = [await queue.take() for _ in keys]
    assert set(taken) == keys
    waiting = {team: sum(key.namespace == team for key in keys) for team in {key.namespace for key in keys}}
    while waiting:
        part, taken = taken[: len(waiting)], taken[len(waiting) :]
        assert {key.namespace for key in part} == set(waiting)
        waiting = {team: left - 1 for team, left in waiting.items() if left > 1}


async def test_in_one_namespace_the_oldest_goes_first() -> None:
    queue = WorkQueue()
    for key in (A, B, A):
        queue.mark(key)
    assert [await queue.take(), await queue.take()] == [A, B]


@pytest.mark.parametrize("queued", [False, True])
async def test_a_breach_goes_before_its_own_namespaces_backlog_and_everybody_elses(queued: bool) -> None:
    queue, canary = WorkQueue(), ObjectKey("ModelDeployment", "ns", "canary")
    for number in range(1000):
        queue.mark(ObjectKey("ModelDeployment", "ns", f"flood-{number}"))
        queue.mark(ObjectKey("TrainingJob", f"team-{number % 20}", f"job-{number}"))
    if queued:
        queue.mark(canary)
    queue.mark(canary, first=True)
    queue.mark(canary)
    assert await queue.take() == canary
    rest = {await queue.take() for _ in range(2000)}
    assert canary not in rest
    assert len(queue) == 0


async def test_a_breach_seen_during_a_pass_over_the_object_comes_right_after_it() -> None:
    queue = WorkQueue()
    queue.mark(A)
    await queue.take()
    queue.mark(A, first=True)
    queue.mark(B)
    queue.done(A)
    assert await queue.take() == A


async def test_all_that_wait_for_a_key_get_one_each() -> None:
    queue = WorkQueue()
    takers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.mark(A)
    done, _ = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [A]
    queue.mark(B)
    assert {await taker for taker in takers} == {A, B}
