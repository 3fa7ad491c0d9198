"""Only what the learner asked for is taken from a sampler."""

from typing import Any

import numpy as np
import pytest

from learnloop_trainer.sampling.intake import RefusedFragment, Shape

CHOICES = Shape(steps=4, observations=3, actions=5, numbers=0, choices=0, corrected=True)
NUMBERS = Shape(steps=4, observations=3, actions=0, numbers=2, choices=0, corrected=False)
BOTH = Shape(steps=4, observations=3, actions=0, numbers=2, choices=3, corrected=True)


def test_what_a_shape_makes_room_for_is_taken() -> None:
    for shape in (CHOICES, NUMBERS, BOTH):
        assert shape.checked(shape.room(2).arrays(), 2).reward.shape == (4, 2)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("reward", np.zeros((4, 3), np.float32), "the learner needs float32 [4, 2]"),
        ("reward", np.zeros((4, 2), np.float64), "reward is float64"),
        ("reward", np.full((4, 2), np.nan, np.float32), "not finite"),
        ("observation", np.full((4, 2, 3), np.inf, np.float32), "not finite"),
        ("observation", np.full((4, 2, 3), 2e9, np.float32), "larger than"),
        ("log_prob", np.full((4, 2), -np.inf, np.float32), "not finite"),
        ("action", np.full((4, 2), 5), "not a whole number from 0 to 4"),
        ("action", np.full((4, 2), -1), "not a whole number from 0 to 4"),
        ("terminated", np.full((4, 2), 7, np.uint8).view(np.bool_), "neither true nor false"),
        ("weights", np.zeros(1, np.float32), "weights are missing or not asked for"),
    ],
)
def test_what_has_another_form_is_refused_with_a_sentence(name: str, array: Any, words: str) -> None:
    arrays = CHOICES.room(2).arrays() | {name: array}
    with pytest.raises(RefusedFragment, match=words.replace("[", r"\[").replace("]", r"\]")):
        CHOICES.checked(arrays, 2)


def test_a_missing_array_is_refused() -> None:
    arrays = CHOICES.room(2).arrays()
    del arrays["reward"]
    with pytest.raises(RefusedFragment, match="arrays reward are missing"):
        CHOICES.checked(arrays, 2)


def test_the_choice_among_numbers_must_be_one_of_the_choices() -> None:
    steps = BOTH.room(2)
    steps.action[0, 0, 0] = 1.5
    with pytest.raises(RefusedFragment, match="not a whole number from 0 to 2"):
        BOTH.checked(steps.arrays(), 2)
