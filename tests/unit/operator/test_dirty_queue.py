"""The queue of objects that want a pass."""

import asyncio

from learnloop_operator.controllers.dirty_queue import BACKGROUND_SHARE, DirtyQueue, Key

A, B = Key("TrainingJob", "ns", "a"), Key("TrainingJob", "ns", "b")


async def test_an_object_marked_many_times_gets_one_pass() -> None:
    queue = DirtyQueue()
    for _ in range(5):
        queue.mark(A)
    assert len(queue) == 1
    assert await queue.take() == A
    queue.done(A)
    assert len(queue) == 0


async def test_what_is_marked_during_a_pass_gets_another_one_after_it() -> None:
    queue = DirtyQueue()
    queue.mark(A)
    await queue.take()
    queue.mark(A)
    queue.mark(B)
    assert await queue.take() == B, "never two passes over one object at a time"
    queue.done(A)
    assert await queue.take() == A


async def test_an_earlier_timer_wins_and_an_event_overtakes_it() -> None:
    queue = DirtyQueue()
    queue.mark_later(A, 0.01)
    queue.mark_later(A, 60.0)
    async with asyncio.timeout(50):  # sooner than the later timer, however slow the machine
        assert await queue.take() == A
    queue.done(A)
    queue.mark_later(A, 60.0)
    queue.mark(A)
    assert len(queue) == 1
    queue.close()


async def test_one_dirty_object_does_not_wait_for_a_thousand_of_another_namespace() -> None:
    queue = DirtyQueue()
    for number in range(1000):
        queue.mark(Key("TrainingJob", "crowded", f"t-{number}"))
    quiet = Key("TrainingJob", "quiet", "t")
    queue.mark(quiet)
    assert quiet in [await queue.take() for _ in range(2)]


async def test_in_a_flood_a_namespace_with_one_change_goes_before_all_that_are_being_worked_off() -> None:
    queue = DirtyQueue()
    for number in range(20 * 51):
        queue.mark(Key("TrainingJob", f"team-{number % 51}", f"t-{number}"))
    for _ in range(100):
        queue.done(await queue.take())
    quiet = Key("RewardPolicy", "quiet", "rp")
    queue.mark(quiet)
    assert await queue.take() == quiet


async def test_coming_back_again_and_again_gets_nobody_ahead_of_a_full_round() -> None:
    queue = DirtyQueue()
    for number in range(1000):
        queue.mark(Key("TrainingJob", f"team-{number % 10}", f"t-{number}"))
    pushy, taken = Key("TrainingJob", "pushy", "t"), []
    for _ in range(110):
        queue.mark(pushy)
        taken.append(await queue.take())
        queue.done(taken[-1])
    assert taken.count(pushy) == 10, "one turn in each round of eleven namespaces"


async def test_news_goes_before_a_resync_which_still_gets_its_share() -> None:
    queue = DirtyQueue()
    for number in range(100):
        queue.mark(Key("TrainingJob", "ns", f"resync-{number}"), urgent=False)
    for number in range(100):
        queue.mark(Key("TrainingJob", "ns", f"news-{number}"))
    queue.mark(Key("TrainingJob", "ns", "resync-99"))
    first = [(await queue.take()).name for _ in range(BACKGROUND_SHARE * 5)]
    assert sum(name.startswith("resync") for name in first) == 5
    rest = [(await queue.take()).name for _ in range(len(queue))]
    assert len({*first, *rest}) == 200, "each exactly once"
    assert "resync-99" in rest[:80], "what became news has left the background"
