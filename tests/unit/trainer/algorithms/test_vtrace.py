"""Learning from logged experience: the recursion is the paper's, and unknown behaviour is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_api.wire.trajectory import LoggedEpisode, Step
from learnloop_environments import make
from learnloop_environments.base import Bounds
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import box
from learnloop_trainer.algorithms import Occasion, learner
from learnloop_trainer.algorithms.vtrace import before_squashing, targets
from learnloop_trainer.distributed.torch_group import Alone
from learnloop_trainer.recordings import Recording, successors
from learnloop_trainer.training_run.logged_experience import fitting

CPU = torch.device("cpu")


def recording(episodes: int, seed: int, known: bool = True) -> Recording:
    """CartPole, played at random; what was done less well is as frequent as what was done well."""
    environment, random = make("CartPole-v1", Split.TRAINING, seed, range(1)), np.random.default_rng(seed)
    seen, rows, done = environment.reset(), [], 0
    while done < episodes:
        action = random.integers(0, 2, 1)
        step = environment.step(action)
        rows.append(
            (seen[0], action[0], step.reward[0], bool((step.terminated | step.truncated)[0]), step.terminated[0])
        )
        done += rows[-1][3]
        seen = step.observation
    observation, action, reward, last, terminated = (np.array(column) for column in zip(*rows, strict=True))
    log_prob = np.full(len(rows), np.log(0.5) if known else np.nan, dtype=np.float32)
    return Recording(observation, action, reward, log_prob, last, terminated)


@given(seed=st.integers(0, 10_000))
def test_on_policy_without_cut_offs_the_targets_are_lambda_returns(seed: int) -> None:
    random, count = np.random.default_rng(seed), 12
    value, reward = (torch.from_numpy(random.normal(size=count)) for _ in range(2))
    last = torch.from_numpy(random.random(count) < 0.3)
    last[-1] = True
    terminated = last & torch.from_numpy(random.random(count) < 0.5)
    parameters = hyperparameters("vtrace", trace=0.9, discount=0.8)
    goal, _ = targets(value, reward, torch.ones(count), last, terminated, parameters)
    expected, following = np.zeros(count), 0.0
    for t in range(count - 1, -1, -1):
        if last[t]:
            expected[t] = reward[t] + 0.8 * (0.0 if terminated[t] else float(value[t]))
        else:
            expected[t] = reward[t] + 0.8 * (0.1 * float(value[t + 1]) + 0.9 * following)
        following = expected[t]
    assert goal.numpy() == pytest.approx(expected, abs=1e-5)


def test_an_action_the_policy_would_not_take_leaves_the_value_as_it_was() -> None:
    value, reward = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 5.0])
    last, terminated = torch.tensor([False, True]), torch.tensor([False, True])
    goal, advantage = targets(value, reward, torch.zeros(2), last, terminated, hyperparameters("vtrace", discount=0.5))
    assert goal.tolist() == [1.0, 2.0]
    assert advantage.tolist() == [5.0 + 0.5 * 2.0 - 1.0, 5.0 - 2.0]


def test_it_is_interrupted_without_loss_and_keeps_its_recording() -> None:
    world, parameters = (
        make("CartPole-v1", Split.TRAINING, 0, range(1)),
        hyperparameters("vtrace", hidden=[8], batch_episodes=4),
    )

    def fresh(source: Recording) -> object:
        return learner(parameters, world, Occasion(0, 100_000, 1, Alone(), lambda: source), CPU)

    first, second = fresh(recording(30, 0)), fresh(recording(30, 1))
    for _ in range(2):
        first.iterate(world.reset())
    second.restore({name: array.copy() for name, array in first.shared().items()}, first.own())
    for one in (first, second):
        one.iterate(world.reset())
    assert first.network.digest() == second.network.digest()
    assert first.step == second.step


def test_a_recording_that_does_not_say_how_likely_its_actions_were_is_refused() -> None:
    source, world = recording(3, 0, known=False), make("CartPole-v1", Split.TRAINING, 0, range(1))
    one = learner(hyperparameters("vtrace"), world, Occasion(0, 1000, 1, Alone(), lambda: source), CPU)
    with pytest.raises(ConfigError, match=r"without the behaviour policy's log-probability; .* set algorithm to bc"):
        one.iterate(world.reset())


def test_numbers_are_judged_where_the_policy_draws_them() -> None:
    """The ratio of two densities is the same before and after squashing, and 1 for the policy that acted."""
    world = make("motion:PointGoals", Split.TRAINING, 0, range(1))
    assert world.bounds is not None
    bounds = Bounds(world.bounds.low * 3, world.bounds.high * 3)
    drawn = np.random.default_rng(0).normal(0, 1, (50, 2)).astype(np.float32)
    before = -0.5 * np.square(drawn).sum(axis=1) - np.log(2 * np.pi)
    squashed = np.tanh(drawn)
    density = before - np.log(3 * (1 - np.square(squashed))).sum(axis=1)
    kept, log_prob = before_squashing(squashed, density.astype(np.float32), bounds)
    assert kept == pytest.approx(drawn, abs=1e-4)
    assert log_prob == pytest.approx(before, abs=1e-4)


def test_numbers_at_their_bounds_stay_finite() -> None:
    kept, log_prob = before_squashing(np.asarray([[1.0, -1.0]]), np.zeros(1, np.float32), box(-1, 1, 2))
    assert np.isfinite(kept).all()
    assert np.isfinite(log_prob).all()


@pytest.mark.parametrize(("number", "name"), [(1, "CartPole-v1"), (0, "motion:PointGoals")])
def test_what_cannot_be_a_probability_or_a_density_counts_as_unknown(number: float, name: str) -> None:
    world = make(name, Split.TRAINING, 0, range(1))
    action: int | list[float] = 1 if world.bounds is None else [0.5, 0.5]
    step = Step(observation=[0.0] * world.observations, action=action, log_prob=number, terminated=True)
    logged = LoggedEpisode(trajectory_id="t", policy_revision="r", episode_return=0, steps=[step])
    found = fitting([logged], world, 10)
    assert found is not None
    assert np.isnan(found.log_prob).all()


def test_an_episode_that_was_cut_off_is_worth_what_was_seen_after_its_last_step() -> None:
    value, reward = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([5.0, 5.0, 5.0])
    last, terminated = torch.tensor([False, True, True]), torch.tensor([False, False, True])
    parameters, beyond = hyperparameters("vtrace", discount=0.5, trace=1.0), torch.tensor([8.0, 100.0])
    goal, advantage = targets(value, reward, torch.ones(3), last, terminated, parameters, beyond)
    assert goal.tolist() == [5.0 + 0.5 * 9.0, 5.0 + 0.5 * 8.0, 5.0]
    assert advantage[1] == 5.0 + 0.5 * 8.0 - 2.0
    assert targets(value, reward, torch.ones(3), last, terminated, parameters)[0][1] == 5.0 + 0.5 * 2.0


def test_what_an_agent_saw_last_reaches_the_learner_and_changes_what_it_learns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = make("CartPole-v1", Split.TRAINING, 0, range(1))

    def learned(last: list[float] | None) -> str:
        steps = [
            Step(observation=[0.0, 0.0, 0.0, float(t)], action=t % 2, log_prob=-0.7, reward=1.0, truncated=t == 4)
            for t in range(5)
        ]
        facts = {"trajectory_id": "t", "policy_revision": "r", "episode_return": 5, "steps": steps}
        found = fitting([LoggedEpisode.model_validate(facts | {"last_observation": last})], world, 100)
        assert found is not None
        parameters = hyperparameters("vtrace", hidden=[8], batch_episodes=2)
        one = learner(parameters, world, Occasion(0, 1000, 1, Alone(), lambda: found), CPU)
        one.iterate(world.reset())
        return str(one.network.digest())

    assert learned([0.0, 0.0, 0.0, 5.0]) != learned([0.0, 0.0, 0.0, 9.0])
    assert "do not say what was seen after" not in capsys.readouterr().out
    assert learned(None) == learned([0.0, 0.0, 0.0, 4.0]), "of older ones, what was seen before the last step stands in"
    assert "1 recorded episodes do not say what was seen after their last step" in capsys.readouterr().out


def test_where_steps_are_left_out_what_came_after_is_still_known() -> None:
    world = make("CartPole-v1", Split.TRAINING, 0, range(1))
    rows = [([float(t), 0, 0, 0], 0 if t != 2 else 7) for t in range(5)]
    steps = [Step(observation=seen, action=done) for seen, done in rows]
    logged = LoggedEpisode(trajectory_id="t", policy_revision="r", episode_return=0, steps=steps)
    found = fitting([logged], world, 100)
    assert found is not None
    assert found.last.tolist() == [False, True, False, True]
    then = successors(found)
    assert then.rows.tolist() == [0, 1, 2]
    assert then.observation[:, 0].tolist() == [1.0, 2.0, 4.0]
    several = [one.model_copy(update={"truncated": number == 1, "action": 0}) for number, one in enumerate(steps)]
    mixed = fitting([logged.model_copy(update={"steps": several})], world, 100)
    assert mixed is not None
    assert mixed.last.tolist() == [False, True, False, False, True], "two episodes that were recorded as one"
    assert successors(mixed).rows.tolist() == [0, 2, 3]
    limited = fitting([logged], world, 1)
    assert limited is not None
    assert successors(limited).observation[:, 0].tolist() == [1.0], "the step that was one too many says it"
