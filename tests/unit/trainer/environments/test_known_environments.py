"""The operator's table of environments agrees with the environments."""

import pytest

from learnloop_api.uniform_policy import ENVIRONMENTS, UniformSpaces
from learnloop_environments import make
from learnloop_environments.make import CLASSICS
from learnloop_environments.randomness import Split

BROUGHT = {"Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Blackjack-v1", "FrozenLake-v1"}
BROUGHT |= {"FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4"}


def test_all_environments_that_every_image_has_are_known() -> None:
    assert set(ENVIRONMENTS) == {*CLASSICS, *BROUGHT}


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_an_environments_spaces_are_those_of_the_table(name: str) -> None:
    world = make(name, Split.TRAINING, 0, range(1))
    bounds = world.bounds
    if bounds is None:
        spaces = UniformSpaces(world.actions, observations=world.observations)
    else:
        low, high = (tuple(side[int(bool(bounds.choices)) :].tolist()) for side in (bounds.low, bounds.high))
        spaces = UniformSpaces(bounds.choices, low, high, world.observations)
    world.close()
    assert ENVIRONMENTS[name] == spaces.uri()
