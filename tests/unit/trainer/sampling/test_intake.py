"""The queue between samplers and learner: short, fair to the learner, and without what is too old."""

import threading
from dataclasses import replace

import numpy as np

from learnloop_trainer.sampling.fragment import Shape, Steps
from learnloop_trainer.sampling.intake import Intake
from learnloop_trainer.sampling.seats import PATIENCE_SECONDS, Seat, Seats

SHAPE = Shape(steps=2, observations=1, actions=2, numbers=0, choices=0, corrected=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fragment(environments: int = 1, mark: float = 0.0) -> Steps:
    steps = SHAPE.room(environments)
    steps.reward[:] = mark
    return steps


def offered(intake: Intake, version: int, steps: Steps, patience: float = 0.0) -> bool:
    """By a sampler of its own."""
    return intake.offer(intake.joined(steps.reward.shape[1]), version, steps, patience)


def published(intake: Intake, versions: int) -> None:
    for _ in range(versions):
        intake.publish({"w": np.zeros(1, np.float32)}, 0)


def test_rows_are_taken_in_the_order_in_which_they_came_whoever_sent_them() -> None:
    intake = Intake(SHAPE, rows=3, most_staleness=4)
    published(intake, 1)
    assert offered(intake, 1, fragment(1, 1.0))
    assert offered(intake, 1, fragment(2, 2.0))
    block = intake.take(0.0)
    assert block is not None
    assert block.steps.reward.tolist() == [[1.0, 2.0, 2.0]] * 2


def test_too_few_rows_stay_for_the_next_look() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 1)
    offered(intake, 1, fragment())
    assert intake.take(0.0) is None
    offered(intake, 1, fragment())
    assert intake.take(0.0) is not None


def test_a_fragment_of_odd_size_never_blocks_a_learner_that_still_needs_it() -> None:
    intake = Intake(SHAPE, rows=8, most_staleness=4)
    published(intake, 1)
    assert all(offered(intake, 1, fragment(3)) for _ in range(3))
    assert intake.take(0.0) is not None


def test_a_full_queue_of_a_replay_buffer_holds_samplers_back_until_the_learner_has_taken() -> None:
    intake = Intake(replace(SHAPE, corrected=False), rows=1, most_staleness=1024)
    published(intake, 1)
    assert offered(intake, 1, fragment())
    assert not offered(intake, 1, fragment(), 0.01)
    taken = threading.Timer(0.05, lambda: intake.take(0.0))
    taken.start()
    assert offered(intake, 1, fragment(), 30.0)
    taken.join()


def test_nobody_begins_a_fragment_that_would_be_two_versions_old_when_its_turn_comes() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 1)
    seats = [intake.joined(1) for _ in range(2)]
    for seat in seats:
        intake.offer(seat, 1, fragment(), 0.0)
        assert intake.begin(seat, 0.0)
    assert intake.take(0.0) is not None
    intake.offer(seats[0], 1, fragment(), 0.0)
    assert not intake.begin(seats[0], 0.01), "two are learned from, one waits and one is played"
    later = threading.Timer(0.05, published, (intake, 1))
    later.start()
    assert intake.begin(seats[0], 30.0)
    later.join()


def test_what_a_lost_sampler_had_begun_is_begun_by_another() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    lost, other = intake.joined(1), Seat(1, None)
    intake.offer(lost, 1, fragment(), 0.0)
    assert intake.begin(lost, 0.0)
    assert not intake.begin(other, 0.01)
    intake.left(lost)
    assert intake.begin(other, 0.0)


def test_a_sampler_that_stands_still_holds_nobody_back_once_it_is_overdue() -> None:
    clock = Clock()
    intake = Intake(SHAPE, rows=2, most_staleness=0, seats=Seats(clock))
    published(intake, 1)
    intake.joined(1)  # and it never says a word
    seat = intake.joined(1)
    clock.now += 1.0
    intake.offer(seat, 1, fragment(), 0.0)
    assert not intake.begin(seat, 0.01), "the learner takes two rows: one waits and one is played"
    clock.now += PATIENCE_SECONDS
    assert intake.begin(seat, 0.0)
    intake.offer(seat, 1, fragment(), 0.0)
    assert intake.take(0.0) is not None
    assert intake.overdue() == 1


def test_a_fragment_that_was_overdue_is_taken_like_any_other() -> None:
    clock = Clock()
    intake = Intake(SHAPE, rows=1, most_staleness=4, seats=Seats(clock))
    published(intake, 1)
    late, other = intake.joined(1), intake.joined(1)
    intake.offer(other, 1, fragment(), 0.0)
    clock.now += PATIENCE_SECONDS + 1.0
    assert (intake.overdue(), intake.take(0.0) is not None) == (1, True)
    assert intake.offer(late, 1, fragment(mark=5.0), 0.0)
    block = intake.take(0.0)
    assert block is not None
    assert (float(block.steps.reward[0, 0]), intake.overdue()) == (5.0, 0)


def test_a_slow_environment_is_never_overdue() -> None:
    clock = Clock()
    intake = Intake(SHAPE, rows=4, most_staleness=4, seats=Seats(clock))
    seats = [intake.joined(1) for _ in range(3)]
    clock.now += 600.0
    assert intake.overdue() == 0, "nobody knows yet how long a fragment takes"
    intake.offer(seats[0], 0, fragment(), 0.0)
    clock.now += 600.0
    assert intake.overdue() == 0


def test_without_any_staleness_samplers_play_in_step_with_the_learner() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=0)
    published(intake, 1)
    seat = intake.joined(1)
    intake.offer(seat, 1, fragment(), 0.0)
    assert not intake.begin(seat, 0.01)
    assert intake.take(0.0) is not None
    assert not intake.begin(seat, 0.01)
    published(intake, 1)
    assert intake.begin(seat, 0.0)


def test_every_sampler_plays_though_an_update_takes_fewer_rows_than_there_are_environments() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    for version in range(1, 5):
        seat = intake.joined(1)
        intake.offer(seat, version, fragment(), 0.0)
        assert intake.begin(seat, 0.0)
        assert intake.take(0.0) is not None
        published(intake, 1)


def test_what_is_too_old_is_dropped_and_counted_when_it_comes_and_when_it_has_waited() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=1)
    published(intake, 3)
    assert offered(intake, 1, fragment(3))
    assert intake.take(0.0) is None
    assert intake.figures()["dropped_steps"] == 6
    assert offered(intake, 2, fragment())
    published(intake, 1)
    assert intake.take(0.0) is None
    assert intake.told().dropped_steps == 8


def test_staleness_is_told_in_versions() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 4)
    offered(intake, 4, fragment())
    offered(intake, 1, fragment())
    assert intake.take(0.0) is not None
    assert intake.figures()["staleness"] == 1.5
    assert intake.told().mean_staleness == 1.5
    assert not intake.told().reproducible


def test_returns_are_those_of_episodes_that_ended() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    steps = fragment()
    steps.terminated[0], steps.returned[0] = True, 7.0
    offered(intake, 1, steps)
    block = intake.take(0.0)
    assert block is not None
    assert block.returns == (7.0,)


def test_a_published_policy_does_not_change_when_the_learner_goes_on() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    weights = np.zeros(1, np.float32)
    intake.publish({"w": weights}, 5)
    weights += 1
    assert intake.policy.arrays["w"].tolist() == [0.0]
    assert (intake.policy.version, intake.policy.step) == (1, 5)
