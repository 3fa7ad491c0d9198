"""Step sizes and clip ranges change over a run as the order says."""

from collections.abc import Callable

import pytest
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_trainer.algorithms import ppo
from learnloop_trainer.algorithms.action_heads import Categorical
from learnloop_trainer.distributed import Alone
from learnloop_trainer.neural.networks import Network
from learnloop_trainer.neural.schedules import between, decayed
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_training import begin

CPU = torch.device("cpu")


@pytest.mark.parametrize(("kind", "half"), [("constant", 1.0), ("linear", 0.5), ("cosine", 0.5)])
def test_a_schedule_starts_at_its_number_and_ends_where_it_says(kind: str, half: float) -> None:
    assert decayed(1.0, kind, 0.0) == 1.0
    assert decayed(1.0, kind, 0.5) == pytest.approx(half)
    assert decayed(1.0, kind, 1.0) == pytest.approx(1.0 if kind == "constant" else 0.0)
    assert decayed(1.0, kind, 1.5) == decayed(1.0, kind, 1.0), "a run may end a few steps late"


def test_a_clip_range_narrows_along_a_line_or_not_at_all() -> None:
    assert [between(0.2, 0.1, done) for done in (0.0, 0.5, 2.0)] == pytest.approx([0.2, 0.15, 0.1])
    assert between(0.2, None, 0.7) == 0.2


def test_an_order_narrows_ppos_clip_range_and_sets_its_step_size(make_order: Callable[..., Order]) -> None:
    ends = {}
    for schedule in ("constant", "linear"):
        small = {"environments": 8, "horizon": 8, "epochs": 1, "minibatches": 1, "hidden": [16], "clipEnd": 0.1}
        training = begin(
            make_order(steps=512, hyperparameters={**small, "learningRateSchedule": schedule}), Alone(), CPU
        )
        for _ in range(5):
            training.observation, _ = training.learner.iterate(training.observation)
        assert isinstance(training.learner, ppo.Ppo)
        assert training.learner._gradients.clip == pytest.approx(0.15), "of the fifth update, at half of the run"
        ends[schedule] = training.learner.network.digest()
    assert ends["constant"] != ends["linear"]


def test_a_huge_ratio_on_a_bad_action_weighs_no_more_than_the_dual_clip() -> None:
    head = Categorical(2)
    network = ppo.init(hyperparameters("ppo", hidden=[4]), 3, head, 0, CPU)
    network.vector.zero_()
    observation, value = torch.zeros(1, 3), torch.zeros(1)
    rare = torch.full((1,), -10.0)  # the policy that acted thought this action very unlikely
    batch = ppo.SampleBatch(observation, torch.tensor([0]), rare, torch.tensor([-1.0]), value)

    def loss(dual_clip: float | None) -> float:
        parameters = hyperparameters("ppo", hidden=[4], dual_clip=dual_clip, entropy_coefficient=0.0)
        return float(ppo.loss(network.leaves, head, batch, parameters).detach())

    assert loss(None) > 1000
    assert loss(3.0) == pytest.approx(3.0)


ONE = {"environments": 2, "learningStarts": 64, "bufferSize": 1000, "batchSize": 8, "hidden": [4], "stepsPerUpdate": 8}
EVERY = {
    "dqn": (ONE, "CartPole-v1"),
    "sac": (ONE, "Pendulum-v1"),
    "independent-dqn": (ONE, "teams:TwoStep"),
    "qmix": (ONE, "teams:TwoStep"),
    "maddpg": (ONE, "teams:Relay"),
    "hierarchical-dqn": (ONE, "grids:KeyDoor"),
    "ppo": ({"environments": 2, "horizon": 16, "minibatches": 1, "epochs": 1, "hidden": [4]}, "CartPole-v1"),
}


@pytest.mark.parametrize("algorithm", EVERY)
def test_every_learner_obeys_its_schedule_warm_up_and_clipping(algorithm, monkeypatch, make_order):
    base, environment = EVERY[algorithm]
    chosen = base | {"learningRateSchedule": "cosine", "warmup": 0.5, "learningRate": 0.01, "maxGradientNorm": 0.25}
    order = make_order(algorithm, steps=512, data={"environment": environment}, hyperparameters=chosen)
    training, taken = begin(order, Alone(), CPU), list[tuple[float, float, float]]()
    adam = Network.adam

    def noted(network: Network, rate: float, max_norm: float, *rest, **options) -> None:
        taken.append((training.learner.step / 512, rate, max_norm))
        adam(network, rate, max_norm, *rest, **options)

    monkeypatch.setattr(Network, "adam", noted)
    while training.learner.step < 512:
        training.observation, _ = training.learner.iterate(training.observation)
    assert {norm for _, _, norm in taken} == {0.25}
    scale = order.parameters.actor_learning_rate / 0.01 if order.spec.algorithm == "maddpg" else 1.0
    for done, rate, _ in taken:
        expected = 0.01 * min(1.0, done / 0.5) * decayed(1.0, "cosine", done)
        assert rate == pytest.approx(expected) or rate == pytest.approx(scale * expected)
    assert max(rate for _, rate, _ in taken) > 0.003
