"""The meta-gradient passes through the inner step, tasks are families, and the export is an adapted policy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import maml
from learnloop_trainer.distributed import Alone
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.rank import run
from testing.training.interrupted_runs import goes_on_exactly

CPU = torch.device("cpu")
RANGES = [{"parameter": "goal_x", "low": -0.5, "high": 0.5}, {"parameter": "goal_y", "low": -0.5, "high": 0.5}]
CASE = {
    "hyperparameters": {"environments": 12, "episodes": 4, "hidden": [8]},
    "data": {"environment": "motion:PointGoals", "randomise": RANGES},
}


def learner_of(order: Order) -> maml.Maml:
    learner = begin(order, Alone(), CPU).learner
    return learner


def test_all_episodes_of_a_task_share_its_goal_and_tasks_differ(make_order: Callable[..., Order]) -> None:
    learner = learner_of(make_order("maml", **CASE))
    goals = learner.draw(0)["goal_x"].reshape(3, 4)
    assert (goals == goals[:, :1]).all()
    assert len(np.unique(goals)) == 3
    assert not np.array_equal(goals, learner.draw(1)["goal_x"].reshape(3, 4))


def test_the_meta_gradient_is_that_of_the_loss_after_the_inner_step(make_order: Callable[..., Order]) -> None:
    """Against finite differences; without second derivatives it is another one."""
    gradients = {}
    for first_order in (False, True):
        order = make_order(
            "maml",
            **CASE | {"hyperparameters": {**CASE["hyperparameters"], "firstOrder": first_order, "adaptationRate": 2.0}},
        )
        learner = learner_of(order)
        random = torch.Generator().manual_seed(0)

        def data(generator: torch.Generator = random) -> tuple[torch.Tensor, ...]:
            drawn = (torch.randn(3, 40, *shape, generator=generator) for shape in ((2,), (2,), ()))
            return (*drawn, torch.ones(3, 40))

        inner, outer = data(), data()
        leaves = {name: leaf.detach().double().requires_grad_() for name, leaf in learner.network.leaves.items()}
        inner, outer = (tuple(x.double() for x in batch) for batch in (inner, outer))

        def after(weights: dict[str, torch.Tensor], one: maml.Maml = learner, a=inner, b=outer) -> torch.Tensor:
            adapted = one.adapt({name: weight.expand(3, *weight.shape) for name, weight in weights.items()}, a)
            return maml.loss(adapted, *b).mean()

        (gradients[first_order],) = torch.autograd.grad(after(leaves), leaves["actor.1.bias"])
        if not first_order:
            step, bias = 1e-5, leaves["actor.1.bias"].detach()
            for index in range(2):
                shift = torch.zeros(2, dtype=torch.float64)
                shift[index] = step
                ends = [after({**leaves, "actor.1.bias": (bias + sign * shift).requires_grad_()}) for sign in (1, -1)]
                assert float(gradients[False][index]) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-4)
    assert not torch.allclose(gradients[False], gradients[True], rtol=1e-3)


def test_the_surrogates_gradient_at_the_policy_that_played_is_the_losss() -> None:
    random = torch.Generator().manual_seed(1)
    weights = {"actor.0.weight": torch.randn(2, 2, generator=random), "actor.0.bias": torch.zeros(2)}
    data = torch.randn(30, 2, generator=random), torch.randn(30, 2, generator=random), torch.randn(30, generator=random)
    data = (*data, torch.ones(30))
    leaf = weights["actor.0.weight"].requires_grad_()
    (plain,) = torch.autograd.grad(maml.loss(weights, *data), leaf)
    (weighted,) = torch.autograd.grad(maml.surrogate(weights, weights, *data), leaf)
    assert torch.allclose(plain, weighted, rtol=1e-4, atol=1e-6)


def test_advantages_have_mean_zero_over_a_tasks_episodes_at_every_step() -> None:
    reward = np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32)
    gain = maml.advantages(reward, np.ones((5, 12), dtype=np.bool_), 3, 0.9)
    assert gain.shape == reward.shape
    assert gain.reshape(5, 3, 4).mean(axis=2) == pytest.approx(0, abs=1e-6)


def test_an_interrupted_run_goes_on_with_the_same_weights(make_order: Callable[..., Order]) -> None:
    goes_on_exactly(make_order("maml", steps=480 * 6, **CASE), 2, 2)


def test_a_run_exports_the_policy_adapted_to_the_nominal_task(make_order, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    order = make_order("maml", steps=960, **CASE)
    learner = learner_of(order)
    learner.iterate(np.zeros((12, 2), dtype=np.float32))
    before = learner.network.digest()
    learner.iterate(np.zeros((12, 2), dtype=np.float32))
    assert learner.step == 960
    assert learner.network.digest() != before
    assert not torch.equal(learner.network.vector, learner._meta)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path, order.job).proof()
    assert proof.parity.passed


def test_meta_learning_without_a_family_of_tasks_is_refused(make_order: Callable[..., Order]) -> None:
    with pytest.raises(ConfigError, match=r"spec.data.randomise: '' is empty: maml needs a family of tasks"):
        begin(make_order("maml", hyperparameters={}, data={"environment": "motion:PointGoals"}), Alone(), CPU)
