"""Steps of an older policy are corrected as V-trace says, and steps of this one are not changed at all."""

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_trainer.algorithms.action_heads import Categorical
from learnloop_trainer.algorithms.base import Occasion
from learnloop_trainer.algorithms.ppo import Rollout, advantages, corrected_advantages, init, prepare
from learnloop_trainer.distributed.torch_group import Alone

PARAMETERS = hyperparameters("ppo", discount=0.9, gae_lambda=0.8)


def rollout(steps: int = 6, environments: int = 3) -> tuple[Rollout, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    lead = (steps, environments)
    terminated, truncated = random.random(lead) < 0.2, random.random(lead) < 0.2
    found = Rollout(
        np.zeros((*lead, 2), np.float32),
        np.zeros((*lead, 2), np.float32),
        np.zeros(lead, np.int64),
        random.normal(size=lead).astype(np.float32),
        terminated,
        truncated & ~terminated,
    )
    value, following = (random.normal(size=lead).astype(np.float32) for _ in range(2))
    return found, value, following


def test_the_policy_that_acted_being_this_one_the_result_is_that_of_gae() -> None:
    played, value, following = rollout()
    plain = advantages(played, value, following, 0.9, 0.8)
    ones = np.ones_like(value)
    advantage, target, weight = corrected_advantages(played, value, following, ones, PARAMETERS, 1.0)
    assert weight.tolist() == ones.tolist()
    np.testing.assert_allclose(advantage, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(target, plain + value, rtol=1e-5, atol=1e-6)


def test_targets_are_those_of_the_paper_s_sum() -> None:
    """Equation 1, with lambda in the trace: v_s = V(s) + sum_t gamma^(t-s) (prod c_i) rho_t delta_t."""
    played, value, following = rollout()
    ratio = np.exp(np.random.default_rng(5).normal(size=value.shape)).astype(np.float32)
    _, target, _ = corrected_advantages(played, value, following, ratio, PARAMETERS, 1.3)
    rho, trace = np.minimum(ratio, 1.3), 0.8 * np.minimum(ratio, 1.0)
    delta = rho * (played.reward + 0.9 * following * ~played.terminated - value)
    over = played.terminated | played.truncated
    for column in range(value.shape[1]):
        for start in range(len(value)):
            total, weight = 0.0, 1.0
            for t in range(start, len(value)):
                total += weight * delta[t, column]
                if over[t, column]:
                    break
                weight *= 0.9 * trace[t, column]
            assert target[start, column] == pytest.approx(value[start, column] + total, rel=1e-4, abs=1e-5)


def test_an_action_that_the_policy_would_never_take_teaches_next_to_nothing() -> None:
    played, value, following = rollout()
    never = np.full_like(value, np.exp(-20.0))
    advantage, target, weight = corrected_advantages(played, value, following, never, PARAMETERS, 1.0)
    assert np.abs(weight * advantage).max() < 1e-6
    np.testing.assert_allclose(target, value, atol=1e-6)


def test_where_every_action_is_as_good_as_every_other_older_steps_change_no_preference() -> None:
    """A mean taken off weight times advantage would: it pushes the policy from whoever acted."""
    played, _, _ = rollout(steps=32)
    played.reward[:] = 1.0
    parameters = hyperparameters("ppo", discount=0.0, hidden=[4])
    head, cpu = Categorical(2), torch.device("cpu")
    network = init(parameters, 2, head, 0, cpu)
    with torch.inference_mode():
        for name, leaf in network.leaves.items():
            if name.startswith("value"):
                leaf.zero_()
        behaviour = np.random.default_rng(7).normal(-0.7, 0.5, played.reward.shape).astype(np.float32)
        occasion = Occasion(0, 100, 3, Alone())
        batch = prepare(network, head, played, parameters, occasion, behaviour, 1.0)
    assert float(batch.advantage.abs().max()) < 1e-6
