"""Levels rise and fall on evidence, survive a restart, and shaped rewards change no ranking of policies."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from grids import Exploration
from learnloop_api.kinds.training.environment_conditions import Curriculum as Settings
from learnloop_environments import Conditions, make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_environments.wrappers import Shaped, innermost
from learnloop_trainer.distributed import Alone
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.curriculum import CurriculumProgress
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.rank import run
from learnloop_trainer.training_run.training_environment import training_world

CPU = torch.device("cpu")
DQN = {"environments": 8, "bufferSize": 1000, "batchSize": 32, "learningStarts": 64, "hidden": [16]}


def curriculum(**settings) -> CurriculumProgress:
    return CurriculumProgress(Exploration.LEVELS, 0, Settings.model_validate(settings))


def test_promotion_needs_both_enough_episodes_and_enough_successes() -> None:
    one = curriculum()
    assert one.note(99, 99) == 0
    assert one.note(1, 1) == 1
    assert (one.name, one.episodes) == ("intermediate", 0)
    assert one.note(100, 56) == 0
    assert one.note(50, 30) == 1


def test_a_level_that_proves_too_hard_is_left_again() -> None:
    one = curriculum(demoteBelow=0.1)
    one.note(100, 100)
    assert one.note(100, 5) == -1
    assert one.name == "beginner"
    assert curriculum().note(1000, 0) == 0, "there is nothing below the first"


def test_thresholds_of_returns_lead_on_and_back_in_the_place_of_successes() -> None:
    one = curriculum(returns=[{"promoteAt": 75}, {"promoteAt": 60, "demoteBelow": 20}])
    assert one.note(100, 100, 74 * 100) == 0, "successes do not count"
    assert one.note(50, 0, 75 * 50) == 1
    assert (one.name, one.evidence) == ("intermediate", "the mean return was 75.0")
    assert one.note(100, 100, 30 * 100) == 0
    assert one.note(50, 50, 19 * 50) == -1
    assert one.note(100, 0, 80 * 100) == 1
    assert one.note(100, 0, 60 * 100) == 1
    assert one.note(100, 0, 1000 * 100) == 0, "the list ends here"


def test_returns_are_counted_as_they_are_before_shaping_and_survive_a_restart(make_order: Callable[..., Order]) -> None:
    data, climb = {"environment": "motion:Navigation"}, {"returns": [{"promoteAt": 1000}]}
    order = make_order(data=data, curriculum=climb, shaping={"potential": True})

    def counted() -> tuple:
        world = training_world(order, range(3))
        return world, world.inner

    world, inner = counted()
    plain, total = make("motion:Navigation", Split.TRAINING, 0, range(3)), 0.0
    again, inner_again = counted()
    world.reset(), plain.reset()
    for age in range(400):
        action = np.full((3, 2), 0.1 * (age % 7), dtype=np.float32)
        total += float(plain.step(action).reward.sum())
        world.step(action)
        if age == 100:
            inner_again.take()
            again.restore(world.state())
            half = inner.take()[2]
        if age > 100:
            again.step(action)
    episodes, _, returns = inner.take()
    under_way = float(inner.state()["counted.running"].sum())
    assert episodes
    assert half + returns + under_way == pytest.approx(total, rel=1e-4)
    assert inner_again.take()[2] == pytest.approx(returns)


@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 1)), max_size=60), st.sampled_from([None, "advanced"]))
def test_a_level_never_leaves_its_bounds_and_never_moves_without_evidence(happened, until):
    one, since = curriculum(until=until, demoteBelow=0.2), 0
    for episodes, share in happened:
        since += episodes
        moved = one.note(episodes, int(episodes * share))
        assert moved == 0 or since >= 100
        since = 0 if moved else since
        assert 0 <= one.level <= one.last
    again = curriculum(until=until, demoteBelow=0.2)
    again.restore(one.state())
    assert [again.note(7, 5) for _ in range(40)] == [one.note(7, 5) for _ in range(40)]


def test_of_successes_whose_order_is_unknown_the_window_keeps_their_share() -> None:
    one = curriculum(window=50, promoteAt=1.0)
    one.note(200, 100)
    assert one.successes == pytest.approx(0.5, abs=0.02)


def test_a_curriculum_without_levels_to_climb_is_refused(make_order: Callable[..., Order]) -> None:
    with pytest.raises(ConfigError, match=r"spec.curriculum: '\(set\)' needs an environment with levels"):
        begin(make_order(curriculum={}), Alone(), CPU)
    with pytest.raises(ConfigError, match=r"spec.curriculum.until: 'heroic' is not a level; choose one of beginner"):
        curriculum(until="heroic")


def easy_order(make_order: Callable[..., Order], **changes) -> Order:
    data = {"environment": "grids:Exploration"}
    climb = {"minEpisodes": 4, "window": 4, "promoteAt": 0.1, "demoteBelow": 0, "until": "intermediate"}
    return make_order("dqn", steps=6000, **{"hyperparameters": DQN, "data": data, "curriculum": climb, **changes})


def test_a_run_climbs_says_so_and_is_measured_at_the_level_it_was_to_reach(make_order, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    order = easy_order(make_order)
    run(order, Place(), 1)
    assert "up to level intermediate at step" in capsys.readouterr().out
    proof = DirectoryStore(tmp_path, order.job).proof()
    assert proof is not None
    store = DirectoryStore(tmp_path / "fixed", order.job)
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/fixed")
    data = {"environment": "grids:Exploration", "level": "intermediate"}
    run(make_order("dqn", steps=64, hyperparameters=DQN, data=data), Place(), 1)
    fixed = store.proof()
    assert fixed.baseline == proof.baseline, "the same held-out episodes of the same level"


def test_the_level_is_part_of_the_checkpoint(make_order: Callable[..., Order]) -> None:
    order = easy_order(make_order)
    first, second = begin(order, Alone(), CPU), begin(order, Alone(), CPU)
    first.curriculum.note(100, 100)
    body = save(first, order, Alone())
    assert restore(second, order, Alone(), body).endswith("level intermediate")
    assert innermost(second.environment).level == second.curriculum.level == 1


@given(seed=st.integers(0, 1000), discount=st.floats(0.5, 1.0))
def test_potential_shaping_adds_the_same_to_whatever_is_done_in_an_episode(seed: int, discount: float) -> None:
    plain = make("motion:Navigation", Split.TRAINING, seed, range(3))
    shaped = Shaped(make("motion:Navigation", Split.TRAINING, seed, range(3)), discount, potential=True, bonus=0.0)
    world, start = innermost(plain), plain.reset()
    random, total, weight = np.random.default_rng(seed), np.zeros(3), 1.0
    for _ in range(40):
        action = random.uniform(-1, 1, (3, 2))
        one, two = plain.step(action), shaped.step(action)
        if (one.terminated | one.truncated).any():
            return
        total += weight * (two.reward.astype(np.float64) - one.reward)
        weight *= discount
        expected = weight * world.potential(one.successor) - world.potential(start)
        assert total == pytest.approx(expected, abs=1e-4)


def test_after_a_termination_nothing_of_the_potential_is_left() -> None:
    shaped = Shaped(make("motion:Navigation", Split.TRAINING, 0, range(1)), 0.9, potential=True, bonus=0.0)
    world = innermost(shaped)
    world.body["place"][:] = world.body["goal"] - 0.5
    state = shaped.state()
    before = world.potential(shaped.restore(state))
    step = shaped.step(np.array([[1.0, 1.0]]))
    assert step.terminated.all()
    own = 10.0 - 0.01 - 0.01 * 0.5
    assert step.reward == pytest.approx(own - before, abs=1e-4)


def test_the_coordination_bonus_is_the_cosine_with_the_best_joint_action() -> None:
    inner = make("teams:CooperativeContinuous", Split.TRAINING, 0, range(2))
    shaped = Shaped(inner, 0.9, potential=False, bonus=0.1)
    best = innermost(shaped).optimal()
    right = np.concatenate((best / np.abs(best).max(), np.zeros((2, 3, 1))), axis=2)
    plain = make("teams:CooperativeContinuous", Split.TRAINING, 0, range(2))
    assert shaped.step(right).reward - plain.step(right).reward == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("shaping", "problem"),
    [
        ({"potential": True}, "shaping.potential: 'CartPole' has no potential"),
        ({"coordinationBonus": 0.1}, "no best joint"),
    ],
)
def test_shaping_an_environment_cannot_offer_is_refused(make_order, shaping, problem):
    with pytest.raises(ConfigError, match=problem):
        training_world(make_order(shaping=shaping), range(2))


def test_randomised_physics_of_a_job_reach_training_and_not_evaluation(make_order: Callable[..., Order]) -> None:
    data = {"environment": "motion:Navigation", "randomise": [{"parameter": "gain", "low": 0.5, "high": 0.6}]}
    order = make_order("sac", hyperparameters={}, data=data)
    gain = innermost(training_world(order, range(8))).parameter["gain"]
    assert ((gain >= 0.5) & (gain <= 0.6)).all()
    assert Conditions() == Conditions(None, (), "team")
