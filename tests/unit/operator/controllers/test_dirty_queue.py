"""The queue of objects that want a pass."""

import asyncio

import pytest

from learnloop_operator.controllers.queue.dirty_queue import BACKGROUND_SHARE, PATIENCE_SECONDS, DirtyQueue
from learnloop_operator.controllers.queue.fair_order import CYCLE, FairOrder
from learnloop_operator.controllers.queue.object_key import ObjectKey

A, B = ObjectKey("TrainingJob", "ns", "a"), ObjectKey("TrainingJob", "ns", "b")


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
        queue.mark(ObjectKey("TrainingJob", "crowded", f"t-{number}"))
    quiet = ObjectKey("TrainingJob", "quiet", "t")
    queue.mark(quiet)
    assert quiet in [await queue.take() for _ in range(2)]


async def test_in_a_flood_a_namespace_with_one_change_goes_before_all_that_are_being_worked_off() -> None:
    queue = DirtyQueue()
    for number in range(20 * 51):
        queue.mark(ObjectKey("TrainingJob", f"team-{number % 51}", f"t-{number}"))
    for _ in range(100):
        queue.done(await queue.take())
    quiet = ObjectKey("RewardPolicy", "quiet", "rp")
    queue.mark(quiet)
    assert await queue.take() == quiet


async def test_a_namespace_that_asks_for_less_than_its_share_never_waits_for_the_backlog_of_others() -> None:
    queue, kinds = DirtyQueue(), ("RewardPolicy", "TrainingJob", "ModelDeployment", "LearningAgent", "MemoryService")
    for number in range(50 * 100):
        queue.mark(ObjectKey(kinds[number % 5], f"team-{number // 5 % 50}", f"o-{number}"))
    quiet, places = ObjectKey("RewardPolicy", "quiet", "rp"), []
    for _ in range(72):
        queue.done(await queue.take())
    for _ in range(30):
        queue.mark(quiet)
        taken = [await queue.take() for _ in range(72)]  # a round of all 51 namespaces, and one in four to the oldest
        places.append(taken.index(quiet))
        for key in taken:
            queue.done(key)
    assert max(places) == 0


def test_on_a_starved_machine_a_quiet_namespace_waits_for_a_few_passes_and_a_crowd_of_them_for_a_round() -> None:
    now = [0.0]
    lane = FairOrder(lambda: now[0])
    for number in range(50 * 100):
        lane.add(ObjectKey("TrainingJob", f"team-{number % 50}", f"t-{number}"))
    quiet, waits = ObjectKey("RewardPolicy", "quiet", "rp"), []
    for _ in range(60):
        lane.pop()
    for _ in range(20):  # ten passes a second: a round of all takes five seconds, and it changes each second
        lane.add(quiet)
        waits.append([lane.pop() for _ in range(10)].index(quiet))
        now[0] += 1.0
    assert max(waits) < CYCLE
    for number in range(500):
        lane.add(ObjectKey("RewardPolicy", f"quiet-{number}", "rp"))
    turns = [lane.pop().namespace for _ in range(2 * 550)]
    assert len(set(turns)) == 550, "each of the 500 and of the 50 that were there before: nobody is starved"


def test_turns_had_in_a_slow_hour_are_not_paid_for_later() -> None:
    now = [0.0]
    lane = FairOrder(lambda: now[0])
    for number in range(50 * 100):
        lane.add(ObjectKey("TrainingJob", f"team-{number % 50}", f"t-{number}"))
    neighbour = ObjectKey("RewardPolicy", "quiet", "rp")
    for _ in range(30):  # ten passes a second, and a change a second: five times the share of one in fifty
        lane.add(neighbour)
        assert neighbour in [lane.pop() for _ in range(10)]
        now[0] += 1.0
    lane.add(neighbour)
    assert neighbour in [lane.pop() for _ in range(CYCLE)]
    lane.add(neighbour)  # at once again: not quiet now, and no worse off than anybody
    assert neighbour in [lane.pop() for _ in range(2 * 51)]


def test_the_last_of_the_longest_backlog_waits_for_those_before_it_and_not_for_a_round_for_each() -> None:
    lane = FairOrder()
    backlog = [ObjectKey("TrainingJob", "crowded", f"t-{number}") for number in range(20)]
    for key in backlog:
        lane.add(key)
    for turn in range(CYCLE * len(backlog)):
        for team in range(50):  # everybody else has news all the time
            key = ObjectKey("TrainingJob", f"team-{team}", f"t-{turn}")
            lane.add(key)
        popped = lane.pop()
        if popped in backlog:
            backlog.remove(popped)
    assert not backlog


async def test_in_one_namespace_a_kind_waits_for_one_pass_of_each_other_kind() -> None:
    queue = DirtyQueue()
    for number in range(500):
        queue.mark(ObjectKey("RewardPolicy" if number % 2 else "TrainingJob", "ns", f"o-{number}"))
    rare = ObjectKey("ModelDeployment", "ns", "md")
    queue.mark(rare)
    assert rare in [await queue.take() for _ in range(3)]


async def test_what_left_the_lane_and_came_back_is_taken_once() -> None:
    queue = DirtyQueue()
    for key in (A, B):
        queue.mark(key, urgent=False)
        queue.mark(key)  # leaves the background for the news
    queue.mark(ObjectKey("TrainingJob", "other", "c"), urgent=False)
    assert {(await queue.take()).name for _ in range(3)} == {"a", "b", "c"}
    assert len(queue) == 0


async def test_coming_back_again_and_again_gets_nobody_ahead_of_a_full_round() -> None:
    queue = DirtyQueue()
    for number in range(1000):
        queue.mark(ObjectKey("TrainingJob", f"team-{number % 10}", f"t-{number}"))
    pushy, taken = ObjectKey("TrainingJob", "pushy", "t"), []
    for _ in range(110):
        queue.mark(pushy)
        taken.append(await queue.take())
        queue.done(taken[-1])
    assert 5 <= taken.count(pushy) <= 10, "at most one turn in each round of eleven namespaces"


async def test_it_tells_whether_a_pass_comes_soon() -> None:
    queue = DirtyQueue()
    assert not queue.comes_within(A, 1000.0)
    queue.mark_later(A, 50.0)
    assert not queue.comes_within(A, 40.0)
    assert queue.comes_within(A, 60.0)
    queue.mark(A)
    assert queue.comes_within(A, 0.0), "it waits for it"
    taken = await queue.take()
    assert not queue.comes_within(A, 1000.0), "the pass that is under way may have looked already"
    queue.mark(A)
    assert queue.comes_within(A, 0.0), "another one follows"
    queue.done(taken)
    queue.close()


async def test_news_goes_before_a_resync_which_still_gets_its_share() -> None:
    queue = DirtyQueue()
    for number in range(100):
        queue.mark(ObjectKey("TrainingJob", "ns", f"resync-{number}"), urgent=False)
    for number in range(100):
        queue.mark(ObjectKey("TrainingJob", "ns", f"news-{number}"))
    queue.mark(ObjectKey("TrainingJob", "ns", "resync-99"))
    first = [(await queue.take()).name for _ in range(BACKGROUND_SHARE * 5)]
    assert sum(name.startswith("resync") for name in first) == 5
    rest = [(await queue.take()).name for _ in range(len(queue))]
    assert len({*first, *rest}) == 200, "each exactly once"
    assert "resync-99" in rest[:80], "what became news has left the background"


async def test_what_waited_long_in_the_background_is_news() -> None:
    now = [0.0]
    queue = DirtyQueue(lambda: now[0])
    for number in range(1000):
        queue.mark(ObjectKey("TrainingJob", "ns", f"resync-{number}"), urgent=False)
    quiet = ObjectKey("TrainingJob", "quiet", "resync")
    queue.mark(quiet, urgent=False)
    for number in range(1000):
        queue.mark(ObjectKey("TrainingJob", "ns", f"news-{number}"))
    now[0] = PATIENCE_SECONDS
    assert quiet in [await queue.take() for _ in range(CYCLE)], "first of its namespace, whatever the backlog of others"


async def test_who_takes_quiet_news_only_gets_what_came_alone_in_its_namespace_and_nobody_gets_it_twice() -> None:
    queue, quiet = DirtyQueue(), ObjectKey("TrainingJob", "quiet", "edited")
    for number in range(3):
        queue.mark(ObjectKey("TrainingJob", "ns", f"flood-{number}"))
    queue.mark(ObjectKey("TrainingJob", "other", "resync"), urgent=False)
    waiting = asyncio.create_task(queue.take_quiet())
    await asyncio.sleep(0)
    assert not waiting.done(), "neither a backlog, the first of it included, nor a resync is quiet"
    queue.mark(quiet)
    assert await waiting == quiet
    assert queue.standing(quiet) == (True, False)
    rest = [await queue.take() for _ in range(4)]
    assert sorted(key.name for key in rest) == ["flood-0", "flood-1", "flood-2", "resync"]
    assert not any(any(queue.standing(key)) for key in rest)
    assert len(queue) == 0


async def test_what_the_others_take_at_once_is_not_there_for_who_takes_quiet_news_only() -> None:
    queue = DirtyQueue()
    takers = [asyncio.create_task(queue.take()), asyncio.create_task(queue.take_quiet())]
    await asyncio.sleep(0)
    queue.mark(A)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [taker.done() for taker in takers] == [True, False]
    queue.mark(ObjectKey("TrainingJob", "quiet", "edited"))
    assert (await takers[1]).namespace == "quiet"


@pytest.mark.parametrize("state", ["new", "queued", "in the background"])
async def test_what_goes_first_goes_before_its_own_namespaces_backlog_and_everybody_elses(state: str) -> None:
    queue, canary, other = (
        DirtyQueue(),
        ObjectKey("ModelDeployment", "ns", "canary"),
        ObjectKey("ModelDeployment", "ns", "other"),
    )
    for number in range(1000):
        queue.mark(ObjectKey("ModelDeployment", "ns", f"flood-{number}"))
        queue.mark(ObjectKey("TrainingJob", f"team-{number % 20}", f"job-{number}"))
    if state != "new":
        queue.mark(canary, urgent=state == "queued")
    queue.mark_first(canary)
    queue.mark_first(other)
    queue.mark_first(canary)
    assert [await queue.take_quiet(), await queue.take()] == [canary, other], "first come first served, to whoever asks"
    assert queue.standing(canary).first
    assert queue.standing(other).first
    rest = {await queue.take() for _ in range(2000)}
    assert canary not in rest
    assert len(queue) == 0


async def test_what_goes_first_comes_right_after_the_pass_over_it_that_is_under_way() -> None:
    queue = DirtyQueue()
    queue.mark(A)
    assert await queue.take() == A
    queue.mark_first(A)
    for number in range(100):
        queue.mark(ObjectKey("TrainingJob", "ns", f"flood-{number}"))
    assert await queue.take() != A, "never two passes over one object at a time"
    waiting = asyncio.create_task(queue.take_quiet())
    await asyncio.sleep(0)
    queue.done(A)
    assert await waiting == A
    queue.done(A)
    assert len({await queue.take() for _ in range(99)}) == 99
    assert len(queue) == 0
