"""The kill sweep itself: what it counts as lost, and a small one from end to end."""

import signal
from pathlib import Path

import pytest

from bench.resume.gang import Note
from bench.resume.sweep import Strike, figures, moment, sweep
from bench.resume.watch.sitecustomize import BEGUN, CAPTURED, ITERATED

LIFE = [
    Note(10.0, 0, BEGUN),
    Note(11.0, 100, ITERATED),
    Note(11.1, 100, CAPTURED),
    Note(12.0, 200, ITERATED),
    Note(12.6, 250, ITERATED),
]


@pytest.mark.parametrize(
    ("at", "more", "told"),
    [
        (9.0, [], ("start", 0.0)),
        (12.7, [Note(15.0, 100, BEGUN)], ("training", 1.5)),
        (12.7, [Note(15.0, 0, BEGUN)], ("training", 2.6)),
        (12.7, [Note(12.8, 250, CAPTURED), Note(15.0, 250, BEGUN)], ("training", 0.0)),
        (14.0, [Note(12.7, 250, CAPTURED), Note(15.0, 250, BEGUN)], ("proof", 0.0)),
        (14.0, [Note(12.7, 250, CAPTURED)], ("proof", 0.0)),
    ],
)
def test_lost_is_the_training_since_the_state_that_was_gone_on_from(
    at: float, more: list[Note], told: tuple[str, float]
) -> None:
    what, lost = moment([*LIFE, *more], Strike(signal.SIGKILL, [0], at), 0.0)
    assert (what, round(lost, 6)) == told


def test_a_run_that_was_killed_at_a_random_moment_ends_identical(tmp_path: Path) -> None:
    result = figures(sweep(1, 5, tmp_path, [("sac", 1)]))
    assert (result["kills"], result["identical"]) == (1, 1)
    assert sum(result["signals"].values()) == sum(result["hit"].values()) == 1
