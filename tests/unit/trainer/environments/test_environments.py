"""The native CartPole is Gymnasium's CartPole-v1."""

import gymnasium
import numpy as np
import pytest

from learnloop_environments import make
from learnloop_environments.cartpole_and_pendulum import CartPole
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split, episode_seeds


def test_native_cartpole_equals_gymnasium_step_by_step_through_ends_and_resets() -> None:
    count, random = 6, np.random.default_rng(3)
    native = CartPole(Split.TRAINING, 0, range(count))
    peers = [gymnasium.make("CartPole-v1") for _ in range(count)]
    for peer in peers:
        peer.reset(seed=0)
    terminations = 0
    for step in range(300):
        body = native.state()["body"]
        for peer, own, age in zip(peers, body, native.state()["age"], strict=True):
            if age == 0:
                peer.reset()
            peer.unwrapped.state = tuple(own)
        action = random.integers(0, 2, count)
        ours = native.step(action)
        for n, peer in enumerate(peers):
            observation, reward, terminated, truncated, _ = peer.step(int(action[n]))
            assert ours.successor[n] == pytest.approx(observation, abs=1e-7), step
            assert (ours.reward[n], ours.terminated[n], ours.truncated[n]) == (reward, terminated, truncated)
            terminations += int(terminated)
    assert terminations > 20


def test_native_cartpole_truncates_at_500_steps_and_shows_the_real_last_observation() -> None:
    environment = CartPole(Split.TRAINING, 0, range(2))
    state = environment.state()
    state["age"][0] = 499
    environment.restore(state)
    step = environment.step(np.array([0, 0]))
    assert step.truncated.tolist() == [True, False]
    assert not step.terminated.any()
    assert not np.array_equal(step.observation[0], step.successor[0])
    assert np.array_equal(step.observation[1], step.successor[1])
    assert np.abs(step.observation[0]).max() <= 0.05


def test_held_out_seeds_and_training_seeds_never_meet() -> None:
    training = episode_seeds(Split.TRAINING, 0, np.arange(1000)[:, None], np.arange(100))
    held_out = episode_seeds(Split.HELD_OUT, 0, np.arange(1000)[:, None], np.arange(100))
    assert training.max() < 1 << 63 <= held_out.min()
    assert len(np.unique(training)) == training.size
    ours, others = (CartPole(split, 0, range(64)).reset() for split in Split)
    assert not set(map(bytes, ours)) & set(map(bytes, others))


def test_any_gymnasium_environment_shows_its_final_observation_too() -> None:
    environment = make("Acrobot-v1", Split.TRAINING, 0, range(2))
    assert (environment.observations, environment.actions) == (6, 3)
    observation = environment.reset()
    for _ in range(500):
        step = environment.step(np.array([0, 1]))
    assert step.truncated.all()
    assert not np.array_equal(step.observation, step.successor)
    assert np.abs(step.observation[:, 4:]).max() <= 0.1
    assert np.array_equal(environment.reset(), observation)
    environment.close()


@pytest.mark.parametrize(("name", "problem"), [("Nothing-v0", "unknown"), ("no name", "unknown")])
def test_an_environment_that_cannot_be_used_is_refused_with_field_and_fix(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"spec.data.environment: '{name}'.*{problem}.*;"):
        make(name, Split.TRAINING, 0, range(2))
