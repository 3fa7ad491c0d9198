"""The queue between samplers and learner: short, fair to the learner, and without what is too old."""

import threading
from dataclasses import replace

import numpy as np

from learnloop_trainer.sampling.fragment import Shape, Steps
from learnloop_trainer.sampling.intake import Intake

SHAPE = Shape(steps=2, observations=1, actions=2, numbers=0, choices=0, corrected=True)


def fragment(environments: int = 1, mark: float = 0.0) -> Steps:
    steps = SHAPE.room(environments)
    steps.reward[:] = mark
    return steps


def published(intake: Intake, versions: int) -> None:
    for _ in range(versions):
        intake.publish({"w": np.zeros(1, np.float32)}, 0)


def test_rows_are_taken_in_the_order_in_which_they_came_whoever_sent_them() -> None:
    intake = Intake(SHAPE, rows=3, most_staleness=4)
    published(intake, 1)
    assert intake.offer(1, fragment(1, 1.0), 0.0)
    assert intake.offer(1, fragment(2, 2.0), 0.0)
    block = intake.take(0.0)
    assert block is not None
    assert block.steps.reward.tolist() == [[1.0, 2.0, 2.0]] * 2


def test_too_few_rows_stay_for_the_next_look() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 1)
    intake.offer(1, fragment(), 0.0)
    assert intake.take(0.0) is None
    intake.offer(1, fragment(), 0.0)
    assert intake.take(0.0) is not None


def test_a_fragment_of_odd_size_never_blocks_a_learner_that_still_needs_it() -> None:
    intake = Intake(SHAPE, rows=8, most_staleness=4)
    published(intake, 1)
    assert all(intake.offer(1, fragment(3), 0.0) for _ in range(3))
    assert intake.take(0.0) is not None


def test_a_full_queue_of_a_replay_buffer_holds_samplers_back_until_the_learner_has_taken() -> None:
    intake = Intake(replace(SHAPE, corrected=False), rows=1, most_staleness=1024)
    published(intake, 1)
    assert intake.offer(1, fragment(), 0.0)
    assert not intake.offer(1, fragment(), 0.01)
    taken = threading.Timer(0.05, lambda: intake.take(0.0))
    taken.start()
    assert intake.offer(1, fragment(), 30.0)
    taken.join()


def test_nobody_begins_a_fragment_that_would_be_two_versions_old_when_its_turn_comes() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 1)
    for _ in range(2):
        intake.joined(1)
    for _ in range(2):
        intake.offer(1, fragment(), 0.0)
        assert intake.begin(1, 0.0)
    assert intake.take(0.0) is not None
    intake.offer(1, fragment(), 0.0)
    assert not intake.begin(1, 0.01), "two are learned from, one waits and one is played"
    later = threading.Timer(0.05, published, (intake, 1))
    later.start()
    assert intake.begin(1, 30.0)
    later.join()


def test_what_a_lost_sampler_had_begun_is_begun_by_another() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    intake.joined(1)
    intake.offer(1, fragment(), 0.0)
    assert intake.begin(1, 0.0)
    assert not intake.begin(1, 0.01)
    intake.left(1, playing=True)
    assert intake.begin(1, 0.0)


def test_without_any_staleness_samplers_play_in_step_with_the_learner() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=0)
    published(intake, 1)
    intake.joined(1)
    intake.offer(1, fragment(), 0.0)
    assert not intake.begin(1, 0.01)
    assert intake.take(0.0) is not None
    assert not intake.begin(1, 0.01)
    published(intake, 1)
    assert intake.begin(1, 0.0)


def test_every_sampler_plays_though_an_update_takes_fewer_rows_than_there_are_environments() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    for _ in range(4):
        intake.joined(1)
        intake.offer(1, fragment(), 0.0)
        assert intake.begin(1, 0.0)
        assert intake.take(0.0) is not None
        published(intake, 1)


def test_what_is_too_old_is_dropped_and_counted_when_it_comes_and_when_it_has_waited() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=1)
    published(intake, 3)
    assert intake.offer(1, fragment(3), 0.0)
    assert intake.take(0.0) is None
    assert intake.figures()["dropped_steps"] == 6
    assert intake.offer(2, fragment(), 0.0)
    published(intake, 1)
    assert intake.take(0.0) is None
    assert intake.told().dropped_steps == 8


def test_staleness_is_told_in_versions() -> None:
    intake = Intake(SHAPE, rows=2, most_staleness=4)
    published(intake, 4)
    intake.offer(4, fragment(), 0.0)
    intake.offer(1, fragment(), 0.0)
    assert intake.take(0.0) is not None
    assert intake.figures()["staleness"] == 1.5
    assert intake.told().mean_staleness == 1.5
    assert not intake.told().reproducible


def test_returns_are_those_of_episodes_that_ended() -> None:
    intake = Intake(SHAPE, rows=1, most_staleness=4)
    published(intake, 1)
    steps = fragment()
    steps.terminated[0], steps.returned[0] = True, 7.0
    intake.offer(1, steps, 0.0)
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
