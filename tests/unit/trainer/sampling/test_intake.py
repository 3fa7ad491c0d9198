"""The queue between samplers and learner: short, fair to the learner, and without what is too old."""

from dataclasses import replace

import numpy as np

from learnloop_trainer.sampling.intake import Intake, Seat, Shape, Steps

SHAPE = Shape(steps=2, observations=1, actions=2, numbers=0, choices=0, corrected=True)


def fragment(environments: int = 1, mark: float = 0.0) -> Steps:
    steps = SHAPE.room(environments)
    steps.reward[:] = mark
    return steps


def offer(intake: Intake, version: int, steps: Steps) -> Seat:
    """By a sampler of its own."""
    seat = intake.join(steps.reward.shape[1])
    intake.offer(seat, version, steps)
    return seat


def published(intake: Intake, versions: int) -> None:
    for _ in range(versions):
        intake.publish({"w": np.zeros(1, np.float32)}, 0)


def test_rows_are_taken_in_the_order_in_which_they_came_whoever_sent_them() -> None:
    intake = Intake(SHAPE, rows=3, most_staleness=4)
    published(intake, 1)
    offer(intake, 1, fragment(1, 1.0))
    offer(intake, 1, fragment(2, 2.0))
    block = intake.take(0.0)
    assert block is not None
    assert block.steps.reward.tolist() == [[1.0, 2.0, 2.0]] * 2


def test_too_few_rows_stay_for_the_next_look() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 1)
    offer(intake, 1, fragment())
    assert intake.take(0.0) is None
    offer(intake, 1, fragment())
    assert intake.take(0.0) is not None


def test_a_fragment_of_odd_size_never_blocks_a_learner_that_still_needs_it() -> None:
    intake = Intake(SHAPE, rows=8, most_staleness=4)
    published(intake, 1)
    for _ in range(3):
        offer(intake, 1, fragment(3))
    assert intake.take(0.0) is not None


def test_a_full_queue_of_a_replay_buffer_holds_samplers_back_until_the_learner_has_taken() -> None:
    intake = Intake(replace(SHAPE, corrected=False), rows=1, most_staleness=1024)
    rings: list[int] = []
    intake.on_room = lambda: rings.append(1)
    published(intake, 1)
    seat = offer(intake, 1, fragment())
    assert not intake.begin(seat)
    rings.clear()
    assert intake.take(0.0) is not None
    assert rings, "samplers that wait are served"
    assert intake.begin(seat)


def test_nobody_begins_a_fragment_that_would_be_two_versions_old_when_its_turn_comes() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 1)
    seats = [intake.join(1) for _ in range(2)]
    for seat in seats:
        intake.offer(seat, 1, fragment())
        assert intake.begin(seat)
    assert intake.take(0.0) is not None
    intake.offer(seats[0], 1, fragment())
    assert not intake.begin(seats[0]), "two are learned from, one waits and one is played"
    published(intake, 1)
    assert intake.begin(seats[0])


def test_what_a_lost_sampler_had_begun_is_begun_by_another() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    lost, other = intake.join(1), Seat(1)
    intake.offer(lost, 1, fragment())
    assert intake.begin(lost)
    assert not intake.begin(other)
    intake.leave(lost)
    assert intake.begin(other)


def test_without_any_staleness_samplers_play_in_step_with_the_learner() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=0)
    published(intake, 1)
    seat = intake.join(1)
    intake.offer(seat, 1, fragment())
    assert not intake.begin(seat)
    assert intake.take(0.0) is not None
    assert not intake.begin(seat)
    published(intake, 1)
    assert intake.begin(seat)


def test_every_sampler_plays_though_an_update_takes_fewer_rows_than_there_are_environments() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    for version in range(1, 5):
        seat = intake.join(1)
        intake.offer(seat, version, fragment())
        assert intake.begin(seat)
        assert intake.take(0.0) is not None
        published(intake, 1)


def test_what_is_too_old_is_dropped_and_counted_when_it_comes_and_when_it_has_waited() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=1)
    published(intake, 3)
    offer(intake, 1, fragment(3))
    assert intake.take(0.0) is None
    assert intake.figures()["dropped_steps"] == 6
    offer(intake, 2, fragment())
    published(intake, 1)
    assert intake.take(0.0) is None
    assert intake.summary().dropped_steps == 8


def test_staleness_is_told_in_versions() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 4)
    offer(intake, 4, fragment())
    offer(intake, 1, fragment())
    assert intake.take(0.0) is not None
    assert intake.figures()["staleness"] == 1.5
    assert intake.summary().mean_staleness == 1.5
    assert not intake.summary().reproducible


def test_returns_are_those_of_episodes_that_ended() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    steps = fragment()
    steps.terminated[0], steps.returned[0] = True, 7.0
    offer(intake, 1, steps)
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
