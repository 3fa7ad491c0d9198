"""Generalised advantage estimation against its definition."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from learnloop_trainer.algorithms.ppo import Rollout, advantages


def rollout(reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> Rollout:
    empty = np.zeros((*reward.shape, 1), dtype=np.float32)
    return Rollout(empty, empty, np.zeros(reward.shape, dtype=np.int64), reward, terminated, truncated)


def test_advantages_of_a_three_step_episode_are_those_computed_by_hand() -> None:
    reward = np.array([[1.0], [2.0], [3.0]], dtype=np.float32)
    value = np.array([[0.5], [1.0], [1.5]], dtype=np.float32)
    successor = np.array([[1.0], [1.5], [9.0]], dtype=np.float32)
    terminated, truncated = np.array([[False], [False], [True]]), np.zeros((3, 1), dtype=bool)
    # deltas: 1 + .5*1 - .5 = 1;  2 + .5*1.5 - 1 = 1.75;  3 + 0 - 1.5 = 1.5;  decay .5*.8 = .4
    expected = [[1 + 0.4 * (1.75 + 0.4 * 1.5)], [1.75 + 0.4 * 1.5], [1.5]]
    result = advantages(rollout(reward, terminated, truncated), value, successor, 0.5, 0.8)
    assert result == pytest.approx(np.array(expected), abs=1e-6)


def test_a_truncated_episode_bootstraps_from_its_real_last_state_and_a_terminated_one_does_not() -> None:
    reward, value = np.ones((1, 2), dtype=np.float32), np.zeros((1, 2), dtype=np.float32)
    successor = np.full((1, 2), 10.0, dtype=np.float32)
    ended = rollout(reward, np.array([[True, False]]), np.array([[False, True]]))
    assert advantages(ended, value, successor, 0.9, 0.95).tolist() == [[1.0, 10.0]]


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1))
def test_advantages_equal_the_sum_of_equation_16_for_any_episodes(seed: int, discount: float, decay: float) -> None:
    random = np.random.default_rng(seed)
    shape = (7, 3)
    reward, value, successor = (random.normal(size=shape).astype(np.float32) for _ in range(3))
    terminated, truncated = random.random(shape) < 0.2, random.random(shape) < 0.2
    expected = np.zeros(shape)
    for t in range(7):
        for n in range(3):
            weight = 1.0
            for k in range(t, 7):
                delta = reward[k, n] + discount * successor[k, n] * (not terminated[k, n]) - value[k, n]
                expected[t, n] += weight * delta
                if terminated[k, n] or truncated[k, n]:
                    break
                weight *= discount * decay
    result = advantages(rollout(reward, terminated, truncated), value, successor, discount, decay)
    assert np.allclose(result, expected, atol=1e-4)
