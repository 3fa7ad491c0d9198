"""Meta-learning where episodes end by themselves, behind wrappers, at levels, and by few episodes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.environment_conditions import Safety
from learnloop_environments import Conditions, make
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import Outcome, Simulation
from learnloop_environments.spaces import Observations, Step
from learnloop_environments.wrappers import Counted, Shaped, innermost
from learnloop_trainer.algorithms import maml
from learnloop_trainer.distributed import Alone
from learnloop_trainer.shielded_environment import Shielded, shielded
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_training import begin

CPU = torch.device("cpu")
SMALL = {"environments": 12, "episodes": 4, "hidden": [8]}
GAIN = [{"parameter": "gain", "low": 0.5, "high": 1.5}]
# The tolerance and the arena make episodes end before their time, some of them immediately.
NAVIGATION = {"environment": "motion:Navigation", "randomise": [*GAIN, {"parameter": "size", "low": 1.2, "high": 1.6}]}
MANIPULATION = {
    "environment": "motion:Manipulation",
    "randomise": [*GAIN, {"parameter": "tolerance", "low": 0.6, "high": 0.8}],
}


def learner_of(order: Order) -> maml.Maml:
    learner = begin(order, Alone(), CPU).learner
    return learner


class Counting(Simulation):
    """Episodes of different lengths: environment k ends after 2 + k steps; the reward is the parameter `gain`."""

    observations, actions = 1, 1
    bounds = make("motion:Navigation", Split.TRAINING, 0, range(1)).bounds
    PARAMETERS = {"gain": 1.0, "max_steps": 50}  # noqa: RUF012

    def _blank(self, count: int) -> dict[str, NDArray]:
        return {"zero": np.zeros(count)}

    def _begin(self, which: NDArray[np.intp], seeds: NDArray[np.uint64]) -> None:
        pass

    def _advance(self, actions: NDArray):
        over = self.age + 1 >= 2 + np.arange(len(self.members))
        return Outcome(self.parameter["gain"].copy(), over, over)

    def _observe(self) -> Observations:
        return np.zeros((len(self.members), 1), dtype=np.float32)


@pytest.mark.parametrize("data", [NAVIGATION, MANIPULATION], ids=lambda data: str(data["environment"]))
def test_a_meta_update_ends_where_episodes_end_by_themselves(make_order, data):
    """Waiting for all environments to end in the same step lasts forever."""
    learner = learner_of(make_order("maml", steps=10**6, hyperparameters=SMALL, data=data))
    limit = int(innermost(learner.environment).PARAMETERS["max_steps"])
    _, experiences = learner.iterate(learner.environment.reset())
    assert len(experiences[0].reward) <= limit
    assert (experiences[0].ended.sum(axis=0) == 1).all()  # each environment's one episode
    assert not learner.network.vector.isnan().any()


def test_what_comes_after_an_episodes_end_teaches_nothing() -> None:
    reward = np.ones((4, 4), dtype=np.float32)
    playing = np.asarray([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=np.bool_)
    wild = np.where(playing, reward, 1000.0).astype(np.float32)
    one, other = (maml.advantages(rows, playing, 2, 0.9) for rows in (reward, wild))
    assert np.array_equal(one, other)
    assert (one[~playing] == 0).all()


def test_the_loss_is_the_mean_over_the_steps_that_were_played() -> None:
    random = torch.Generator().manual_seed(0)
    weights = {"actor.0.weight": torch.randn(1, 3, 2, generator=random), "actor.0.bias": torch.zeros(1, 2)}
    observations, before = torch.randn(1, 5, 3, generator=random), torch.randn(1, 5, 2, generator=random)
    gain = torch.randn(1, 5, generator=random)
    playing = torch.tensor([[1.0, 1, 1, 0, 0]])
    whole = maml.loss(weights, observations[:, :3], before[:, :3], gain[:, :3], torch.ones(1, 3))
    assert torch.allclose(maml.loss(weights, observations, before, gain, playing), whole)
    short = maml.surrogate(weights, weights, observations[:, :3], before[:, :3], gain[:, :3], torch.ones(1, 3))
    assert torch.allclose(maml.surrogate(weights, weights, observations, before, gain, playing), short)


def test_an_environment_that_begins_anew_keeps_its_tasks_physics() -> None:
    world = Counting(Split.TRAINING, 0, range(3), Conditions(randomise=(("gain", 5.0, 6.0),)))
    world.impose({"gain": np.asarray([7.0, 8.0, 9.0])})
    for _ in range(12):
        assert world.step(np.zeros((3, 2))).reward.tolist() == [7.0, 8.0, 9.0]
    world.impose({})
    for _ in range(12):
        reward = world.step(np.zeros((3, 2))).reward
        assert ((reward >= 5.0) & (reward <= 6.0)).all()


def test_wrappers_know_when_tasks_are_imposed() -> None:
    """A shaped reward is the difference to where the episode stands, not to where the one before it ended."""
    world = Shaped(Counted(make("motion:Navigation", Split.TRAINING, 0, range(2))), 0.9, potential=True, bonus=0.0)
    world.reset()
    begun = world.impose({"gain": np.ones(2)})
    plain = innermost(make("motion:Navigation", Split.TRAINING, 0, range(2)))
    assert isinstance(plain, Simulation)
    plain.impose({"gain": np.ones(2)})
    actions = np.ones((2, 2), dtype=np.float32)
    shaped: Step = world.step(actions)
    bare = plain.step(actions)
    moved = 0.9 * plain.potential(bare.successor) - plain.potential(begun)
    assert shaped.reward == pytest.approx(bare.reward + moved, abs=1e-5)


def test_a_shield_judges_by_the_first_observation_of_the_task_imposed() -> None:
    far = {"observation": 6, "above": 5.5}  # metres to the right wall: as many only in the arena imposed
    limit = {"name": "slow", "when": [far], "components": [0], "max": 0.0}
    safety = Safety.model_validate({"constraints": [limit], "fallback": [0.0, 0.0]})
    world = shielded(make("motion:Navigation", Split.TRAINING, 0, range(2)), safety, exploring=True)
    assert isinstance(world, Shielded)
    world.reset()
    world.impose({"size": np.full(2, 8.0)})
    world.step(np.ones((2, 2), dtype=np.float32))
    assert world.interventions.tolist() == [1, 1]


def test_the_nominal_task_is_that_of_the_level(make_order: Callable[..., Order]) -> None:
    data = {**NAVIGATION, "level": "intermediate"}
    learner = learner_of(make_order("maml", hyperparameters=SMALL, data=data))
    assert learner.nominal() == {"gain": 1.0, "size": 8.0}


def test_the_export_adapts_by_the_episodes_of_one_task_alone(make_order: Callable[..., Order]) -> None:
    """As any other new task: with `episodes`, and not with those of all tasks that are played side by side."""
    ranges = [{"parameter": name, "low": -0.5, "high": 0.5} for name in ("goal_x", "goal_y")]
    data = {"environment": "motion:PointGoals", "randomise": ranges}
    learner = learner_of(make_order("maml", steps=480, hyperparameters=SMALL, data=data))
    original = learner.environment.step

    def disturbed(actions: NDArray) -> Step:
        step = original(actions)
        step.reward[4:] *= -3.0  # other tasks' episodes
        return step

    task = learner.nominal()
    plain = learner.adapted_to(task)
    learner.environment.step = disturbed
    again = learner.adapted_to(task)
    assert all(torch.equal(plain[name], again[name]) for name in plain)
