"""The bound of an update's distance from the policy that serves."""

import numpy as np
import pytest

from learnloop_trainer.export.exported_policy import Behaving
from learnloop_trainer.recordings import Mixture
from learnloop_trainer.training_run.kl_bound import LARGEST, divergence

MET = np.zeros((2, 1), np.float32)


class Draws(Behaving):
    """Draws one of two actions."""

    draws = True

    def __init__(self, *chances: float) -> None:
        self.chances = np.array(chances)

    def mixture(self, observation):
        return Mixture(np.tile(np.arange(2), (len(observation), 1)), np.tile(self.chances, (len(observation), 1)))

    def log_probability(self, observation, action):
        return np.log(self.chances[action])


def test_the_divergence_is_that_of_the_serving_policy_from_the_update() -> None:
    assert divergence(Draws(0.5, 0.5), Draws(0.5, 0.5), MET) == 0.0
    assert divergence(Draws(0.5, 0.5), Draws(0.25, 0.75), MET) == pytest.approx(0.1438, abs=1e-4)
    assert divergence(Draws(1e-300, 1.0), Draws(0.5, 0.5), MET) == pytest.approx(np.log(2))


@pytest.mark.parametrize("broken", [(np.nan, np.nan), (0.5, np.nan)])
def test_a_divergence_that_is_no_number_is_above_every_bound(broken: tuple[float, float]) -> None:
    assert divergence(Draws(0.5, 0.5), Draws(*broken), MET) == LARGEST
    assert divergence(Draws(*broken), Draws(0.5, 0.5), MET) == LARGEST
