"""Two-level targets, intrinsic rewards, exact resume, and a graph that chooses its landmark by itself."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from grids import DOOR, KEY, SIZE, KeyDoor
from learnloop_api.kinds.training.algorithms import Curiosity, hyperparameters
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, hierarchical_dqn, icm
from learnloop_trainer.distributed import Alone
from learnloop_trainer.replay import Transitions
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.rank import run
from testing.training.interrupted_runs import goes_on_exactly

CPU = torch.device("cpu")
SMALL = {"environments": 4, "hidden": [8], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}
DATA = {"environment": "grids:KeyDoor"}
CASES = [
    ("hierarchical-dqn", {"hyperparameters": SMALL, "data": DATA}),
    ("dqn", {"hyperparameters": {**SMALL, "curiosity": {"hidden": [8], "features": 4}}, "data": DATA}),
]


def constant(name: str, inputs: int, values: list[float]) -> dict[str, torch.Tensor]:
    """A perceptron that always answers the same."""
    return {f"{name}.0.weight": torch.zeros(inputs, len(values)), f"{name}.0.bias": torch.tensor(values)}


def test_the_controller_is_paid_for_the_landmark_and_the_meta_controller_by_the_world() -> None:
    parameters = hyperparameters("hierarchical-dqn", discount=0.5, controller_discount=0.25)
    leaves = constant("meta", 1, [0.0, 0.0]) | constant("q", 3, [0.0, 0.0])
    target = constant("meta", 1, [4.0, 8.0]) | constant("q", 3, [2.0, 6.0])
    observation, reward = torch.zeros(3, 1), torch.tensor([1.0, 1.0, 1.0])
    batch = Transitions(observation, observation, torch.tensor([[0.0, 0.0]] * 3), reward, torch.tensor([1.0, 1.0, 0.0]))
    at = torch.tensor([0, -1, -1])  # reached the landmark; still on the way; the episode ended on the way
    loss = hierarchical_dqn.loss(leaves, target, batch, at, parameters)
    controller = [1.0, 0.25 * 6, 0.0]
    meta = [1 + 0.5 * 8, 1 + 0.5 * 4, 1.0]
    assert float(loss) == pytest.approx(sum(y * y for y in (*controller, *meta)))


def test_the_door_pays_only_one_who_has_the_key() -> None:
    world = KeyDoor(Split.TRAINING, 0, range(2))
    world.parameter["slip"][:] = 0.0
    world.body["place"][:] = np.asarray(DOOR) - [1, 0]
    world.body["key"][:] = [True, False]
    step = world.step(np.array([2, 2]))
    assert step.reward.tolist() == [1, 0]
    assert step.terminated.tolist() == [True, False]
    assert KeyDoor.reached(step.successor).tolist() == [1, 1]
    world.body["place"][:] = KEY
    assert KeyDoor.reached(world._observe()).tolist() == [0, 0]
    assert world.observations == 2 * SIZE + 1


def test_curiosity_fades_where_the_world_has_become_predictable_and_noise_is_ignored() -> None:
    occasion, random = Occasion(0, 1000, 1, Alone()), np.random.default_rng(0)
    module = icm.Icm(Curiosity(features=4, hidden=[16], scale=0.5, learning_rate=3e-3), 2, 2, occasion, CPU)

    def batch(start: float) -> Transitions:
        action = torch.from_numpy(random.integers(0, 2, 256))
        observations = torch.full((256, 2), start)
        after = observations.clone()
        after[:, 0] += 2.0 * action - 1.0
        nothing = torch.zeros(256)
        return Transitions(observations, after, action, nothing, nothing)

    before = module.reward(batch(0.0)).mean()
    for _ in range(300):
        module.update(batch(0.0), 256)
    familiar, novel = module.reward(batch(0.0)).mean(), module.reward(batch(3.0)).mean()
    assert familiar < 0.2 * before or familiar < 1e-3
    assert novel > 3 * familiar
    assert module.reward(batch(1e6)).max() <= 1.0


@pytest.mark.parametrize(("algorithm", "changes"), CASES)
def test_an_interrupted_run_ends_with_the_same_weights_to_the_last_bit(make_order, algorithm, changes):
    assert goes_on_exactly(make_order(algorithm, steps=2048, **changes), 3, 3).learner.network.updates > 10


def test_the_exported_graph_chooses_its_landmark_by_itself(make_order, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    algorithm, changes = CASES[0]
    order = make_order(algorithm, steps=1024, **changes)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path, order.job).proof()
    assert proof.parity.passed


def test_an_environment_without_landmarks_is_refused(make_order: Callable[..., Order]) -> None:
    order = make_order("hierarchical-dqn", **{"data": {"environment": "CartPole-v1"}})
    with pytest.raises(ConfigError, match="'CartPole' has no landmarks for a meta-controller"):
        begin(order, Alone(), CPU)
