"""In a simulator a RewardPolicy rewards steps by the rules that it rewards logged episodes by."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import LoggedEpisode, Step
from learnloop_common.reward_rules.components import Episode
from learnloop_common.reward_rules.outcome_values import OutcomeValues
from learnloop_common.reward_rules.step_rewards import as_played, divided, whole
from learnloop_environments import Conditions, make
from learnloop_environments.errors import ConfigError
from learnloop_environments.multipliers import Multipliers
from learnloop_environments.randomness import Split
from learnloop_environments.rewarded_by_policy import Rewarded
from learnloop_trainer.distributed import Alone
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.reward_rules import step_rewards
from testing.training.interrupted_runs import advance, goes_on_exactly

CPU = torch.device("cpu")
KINDS = ("environment", "success", "efficiency", "base", "time", "smoothness", "feedback", "collision", "exploration")
GENTLE = {
    "components": [
        {"name": "far", "type": "environment", "weight": 0.3, "scale": 10},
        {"name": "bumps", "type": "collision", "weight": 0.1, "key": "collisions.max"},
        {"name": "smooth", "type": "smoothness", "weight": 0.3},
        {"name": "won", "type": "success", "weight": 0.3},
    ]
}


@st.composite
def policies(draw: st.DrawFn) -> RewardPolicySpec:
    chosen = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    body = {
        "components": [
            {"name": f"c{n}", "type": kind, "weight": 1 / len(chosen), "scale": draw(st.sampled_from([1.0, 7.0]))}
            for n, kind in enumerate(chosen)
        ],
        "missing": draw(st.sampled_from(["zero", "reweigh"])),
        "credit": {"method": draw(st.sampled_from(["final", "uniform", "discounted", "environment"]))},
    }
    if draw(st.booleans()):
        body["shaping"] = {"observation": 1, "weight": -3.0, "discount": 0.9}
    if draw(st.booleans()):
        body["constraints"] = [{"name": "bumped", "key": "collisions", "maximum": 9, "rewardAtMost": -7}]
    return RewardPolicySpec.model_validate(body)


@given(policies(), st.sampled_from(["CartPole-v1", "Pendulum-v1", "grids:Exploration"]), st.integers(0, 99))
def test_a_simulated_episode_earns_what_the_same_episode_earns_when_it_was_logged(policy, name, seed):
    world = Rewarded(make(name, Split.TRAINING, seed, range(2)), policy, success_return=12.0)
    plain, random = make(name, Split.TRAINING, seed, range(2)), np.random.default_rng(seed)
    observation, log, earned, values = plain.reset(), [], [], OutcomeValues()
    assert (world.reset() == observation).all()
    for _ in range(250):
        action = random.integers(0, 2, 2) if plain.bounds is None else random.uniform(-1, 1, (2, plain.actions))
        action = action if plain.bounds is None else plain.bounds.scale(action.astype(np.float32))
        own, step = world.step(action), plain.step(action)
        values.note({name: count[0] for name, count in step.values.items()})
        log.append(
            {
                "observation": observation[0].tolist(),
                "action": action[0].tolist(),
                "reward": float(step.reward[0]),
                "terminated": bool(step.terminated[0]),
            }
        )
        earned.append(float(own.reward[0]))
        assert (own.observation == step.observation).all()
        observation = step.observation
        if step.terminated[0] or step.truncated[0]:
            break
    total = sum(entry["reward"] for entry in log)
    success = total >= 12.0 if step.success is None else bool(step.success[0])
    episode = Episode(total, success, len(log), values, log)
    expected = as_played(policy, episode, step.successor[0].tolist())
    if step.terminated[0] or step.truncated[0]:
        assert earned == pytest.approx(expected, rel=1e-3, abs=1e-3)
    else:
        assert earned[:-1] == pytest.approx(expected[:-1], rel=1e-3, abs=1e-3)


@given(policies(), st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.booleans())
def test_the_parts_add_up_to_the_whole_and_shaping_to_what_it_telescopes_to(policy, rewards, terminated):
    log = [
        {"observation": [0.0, float(t)], "action": t % 2, "reward": reward, "terminated": False}
        for t, reward in enumerate(rewards)
    ]
    log[-1]["terminated"] = terminated
    episode = Episode(sum(rewards), True, len(log), {"feedback": 0.5}, log)
    for rule in (as_played, divided):
        plain = rule(policy.model_copy(update={"shaping": None}), episode)
        assert sum(plain) == pytest.approx(whole(policy, episode), abs=1e-6)
        shaped = rule(policy, episode, [0.0, float(len(log))])
        if policy.shaping is not None:
            discounted = sum(0.9**t * (a - b) for t, (a, b) in enumerate(zip(shaped, plain, strict=True)))
            end = 0.0 if terminated else 0.9 ** len(log) * -3.0 * len(log)
            assert discounted == pytest.approx(end, abs=1e-6)
    assert as_played(policy, Episode(0.0, None, 0)) == []


def test_an_episode_that_breaks_a_constraint_is_not_worth_more_than_it_allows() -> None:
    limit = {"name": "crash", "key": "collisions", "rewardAtMost": -2.0}
    spec = {"components": [{"name": "won", "type": "success", "weight": 1}], "constraints": [limit]}
    policy = RewardPolicySpec.model_validate(spec)
    log = [{"observation": [0.0], "action": 0, "reward": 1.0}] * 2
    assert as_played(policy, Episode(2.0, True, 2, {"collisions": 1.0}, log)) == [0.0, -2.0]
    assert as_played(policy, Episode(2.0, True, 2, {"collisions": 0.0}, log)) == [0.0, 1.0]


@pytest.mark.parametrize("played", [True, False])
def test_a_logged_episode_succeeds_by_the_return_that_a_played_one_succeeds_by(played: bool) -> None:
    policy = RewardPolicySpec.model_validate({"components": [{"name": "won", "type": "success", "weight": 1}]})
    steps = [Step(observation=[0.0], action=0, reward=3.0)]

    def worth(success: bool | None, episode_return: float) -> float:
        facts = {"trajectory_id": "t", "policy_revision": "r", "episode_return": episode_return, "success": success}
        return sum(step_rewards(policy, played=played, success_return=3.0)(LoggedEpisode(**facts, steps=steps)))

    assert [worth(None, 3.0), worth(None, 2.0), worth(False, 3.0), worth(True, 2.0)] == [1.0, 0.0, 0.0, 1.0]


def by_policy(make_order: Callable[..., Order], tmp_path: Path, algorithm: str, world: str) -> Order:
    directory = tmp_path / "reward-policies" / "gentle"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "r1.json").write_text(json.dumps(GENTLE))
    data = {"environment": world, "rewards": "policy", "learningAgentRef": {"name": "la"}}
    order = make_order(algorithm, data=data, **({} if algorithm in ("ppo", "dqn") else {algorithm: {"hidden": [8]}}))
    body = order.model_dump(by_alias=True, exclude_none=True)
    return Order.model_validate(body | {"rewardPolicy": {"name": "gentle", "revision": "r1"}})


def limited(world: str, maximum: float) -> Rewarded:
    policy = RewardPolicySpec.model_validate(
        {"components": [{"name": "own", "type": "environment", "weight": 1}]}
        | {"constraints": [{"name": "bumped", "key": "collisions", "maximum": maximum}]}
    )
    inner = make(world, Split.TRAINING, 0, range(1), Conditions("expert") if ":" in world else Conditions())
    return Rewarded(inner, policy, penalties=Multipliers(policy.constraints, 0.1))


@pytest.mark.parametrize("world", ["motion:Navigation", "teams:Cooperative"])
def test_a_step_costs_what_it_adds_to_a_constrained_value_times_its_multiplier(world):
    rewarded, plain = limited(world, 0.0), make(world, Split.TRAINING, 0, range(1), Conditions("expert"))
    random = np.random.default_rng(0)
    penalties, cost, ended = rewarded._penalties, 0.0, False
    assert penalties is not None
    penalties.values[:] = 3.0
    rewarded.reset(), plain.reset()
    while not ended:
        choice = random.integers(0, plain.actions, (1, getattr(plain, "agents", 1)))
        action = choice if plain.bounds is None else random.uniform(-1, 1, (1, plain.actions))
        own, step = rewarded.step(action), plain.step(action)
        ended = bool(step.terminated[0] | step.truncated[0])
        added = float(step.values["collisions"][0])
        cost += added
        if not ended:
            assert own.reward == pytest.approx((step.reward - 3.0 * added) / 4.0, rel=1e-4, abs=1e-4)
    assert cost > 0
    figures = penalties.ascend(lambda numbers: [2 * number for number in numbers])
    assert figures == pytest.approx({"multiplier": 3.0 + 0.1 * cost, "constraint_excess": cost}), "a mean of two ranks"
    assert penalties.ascend(lambda numbers: numbers) == {}, "no episode has ended since"


def test_a_checkpoint_holds_multipliers_and_a_limit_that_holds_lowers_them_to_0(make_order, tmp_path):
    order, store = by_policy(make_order, tmp_path, "ppo", "motion:Navigation"), DirectoryStore(tmp_path, "small-1")
    constrained = GENTLE | {"constraints": [{"name": "bumped", "key": "collisions", "maximum": 2.0}]}
    (tmp_path / "reward-policies" / "gentle" / "r1.json").write_text(json.dumps(constrained))
    chosen = order.spec.hyperparameters.model_copy(update={"lagrangian_learning_rate": 0.1})
    order = order.model_copy(update={"spec": order.spec.model_copy(update={"hyperparameters": chosen})})
    training = begin(order, Alone(), CPU, store)
    assert training.penalties is not None
    training.penalties.values[:] = 0.3
    resumed = begin(order, Alone(), CPU, store)
    restore(resumed, order, Alone(), save(training, order, Alone()) or b"")
    assert resumed.penalties is not None
    assert resumed.penalties.values.tolist() == [0.3]
    resumed.penalties.ended(np.zeros(1))
    assert resumed.penalties.ascend(lambda numbers: numbers)["multiplier"] == pytest.approx(0.1)
    resumed.penalties.ended(np.zeros(1))
    assert resumed.penalties.ascend(lambda numbers: numbers)["multiplier"] == 0.0


@pytest.mark.parametrize(
    ("algorithm", "world"), [("ppo", "grids:Exploration"), ("ppo", "Pendulum-v1"), ("dqn", "CartPole-v1")]
)
def test_an_interrupted_run_by_a_policys_rewards_goes_on_exactly(make_order, tmp_path, algorithm, world):
    order, store = by_policy(make_order, tmp_path, algorithm, world), DirectoryStore(tmp_path, "small-1")
    resumed = goes_on_exactly(order, 3, 3, store)
    raw = order.model_dump(by_alias=True, exclude_none=True)
    other = Order.model_validate(raw | {"rewardPolicy": {"name": "gentle", "revision": "r2"}})
    with pytest.raises(ValueError, match="belongs to another specification"):
        restore(resumed, other, Alone(), save(resumed, order, Alone()))


def test_a_policys_rewards_change_what_ppo_learns(make_order: Callable[..., Order], tmp_path: Path) -> None:
    store, own = DirectoryStore(tmp_path, "small-1"), make_order(data={"environment": "CartPole-v1"})
    steered = by_policy(make_order, tmp_path, "ppo", "CartPole-v1")
    one, other = (advance(begin(order, Alone(), CPU, store), 3) for order in (own, steered))
    assert one.learner.network.digest() != other.learner.network.digest()
    assert max(other.episodes.recent) < max(one.episodes.recent), "a tenth of the return, and what comes at the end"


def test_a_number_to_shape_by_that_observations_do_not_have_is_refused() -> None:
    policy = RewardPolicySpec.model_validate({"shaping": {"observation": 4, "weight": 1}})
    with pytest.raises(
        ConfigError, match=r"RewardPolicy shaping.observation: '4' is not a number of .* have 4; correct"
    ):
        Rewarded(make("CartPole-v1", Split.TRAINING, 0, range(1)), policy)


def test_milestones_of_messages_are_refused_where_observations_are_numbers() -> None:
    policy = RewardPolicySpec.model_validate({"shaping": {"milestones": ["found"], "weight": 1}})
    with pytest.raises(ConfigError, match=r"RewardPolicy shaping.milestones: .* are of messages, not numbers"):
        Rewarded(make("CartPole-v1", Split.TRAINING, 0, range(1)), policy)


LIKED = {"components": [{"name": "liked", "type": "feedback", "weight": 1.0}]}
WON = {"components": [{"name": "won", "type": "success", "weight": 1.0}, {"name": "far", "type": "time", "weight": 0}]}


def test_a_run_whose_policy_finds_nothing_in_play_is_refused(make_order: Callable[..., Order], tmp_path: Path) -> None:
    order, store = by_policy(make_order, tmp_path, "ppo", "CartPole-v1"), DirectoryStore(tmp_path, "small-1")
    where = tmp_path / "reward-policies" / "gentle" / "r1.json"
    where.write_text(json.dumps(LIKED))
    message = r"spec.data.rewards: 'policy' would reward every step with 0: .* no value of liked \(feedback\); give the"
    with pytest.raises(ConfigError, match=message):
        begin(order, Alone(), CPU, store)
    where.write_text(json.dumps({**LIKED, "shaping": {"observation": 1, "weight": 1}}))
    begin(order, Alone(), CPU, store)  # the number that it shapes by is seen


def test_success_alone_rewards_play_where_somebody_says_what_it_is(make_order, tmp_path):
    order, store = by_policy(make_order, tmp_path, "ppo", "CartPole-v1"), DirectoryStore(tmp_path, "small-1")
    (tmp_path / "reward-policies" / "gentle" / "r1.json").write_text(json.dumps(WON))
    with pytest.raises(ConfigError, match=r"no value of won \(success\); set spec.data.successReturn, or give the"):
        advance(begin(order, Alone(), CPU, store), 1)
    data = order.spec.data.model_copy(update={"success_return": 9.0})
    solvable = order.model_copy(update={"spec": order.spec.model_copy(update={"data": data})})
    assert max(advance(begin(solvable, Alone(), CPU, store), 3).episodes.recent) == 1.0
    world = Rewarded(make("grids:KeyDoor", Split.TRAINING, 0, range(1)), RewardPolicySpec.model_validate(WON))
    world.reset()
    world.step(np.zeros(1, dtype=np.int64))  # says itself what success is


def test_a_policy_that_names_what_no_info_has_ends_the_run_after_a_hundred_episodes() -> None:
    component = {"name": "swept", "type": "exploration", "weight": 1, "key": "rooms"}
    policy = RewardPolicySpec.model_validate({"components": [component]})
    world = Rewarded(make("CartPole-v1", Split.TRAINING, 0, range(2)), policy)
    world.reset()
    with pytest.raises(ConfigError, match=r"no value of swept \(exploration rooms\); .*the key of a number in the"):
        [world.step(np.zeros(2, dtype=np.int64)) for _ in range(1000)]


@pytest.mark.parametrize("maximum", [2.0, -2.0])
def test_a_constraint_on_what_no_info_has_gets_no_figure_and_no_multiplier(maximum: float) -> None:
    rewarded = limited("CartPole-v1", maximum)
    assert rewarded._penalties is not None
    rewarded.reset()
    while not (step := rewarded.step(np.zeros(1, dtype=np.int64))).terminated[0]:
        assert step.reward.tolist() == [1.0]
    assert rewarded._penalties.ascend(lambda numbers: numbers) == {"multiplier": 0.0}
    rewarded._penalties.ended(np.ones(1))
    assert rewarded._penalties.ascend(lambda numbers: numbers)["constraint_excess"] == 1.0 - maximum
    rewarded._penalties.ended(np.full(1, np.nan))
    assert rewarded._penalties.ascend(lambda numbers: numbers)["constraint_excess"] == -maximum, "once seen, 0"


def test_a_team_earns_together_what_the_rules_say_of_its_episode() -> None:
    policy = RewardPolicySpec.model_validate(GENTLE)
    world, random = make("teams:Cooperative", Split.TRAINING, 0, range(1)), np.random.default_rng(0)
    rewarded = Rewarded(make("teams:Cooperative", Split.TRAINING, 0, range(1)), policy)
    world.reset()
    rewarded.reset()
    log, earned = [], 0.0
    while True:
        action = random.integers(0, world.actions, (1, world.agents))
        step, own = world.step(action), rewarded.step(action)
        log.append({"action": action.reshape(-1).tolist(), "reward": float(step.reward.mean())})
        earned += float(own.reward.mean())
        if step.terminated[0] or step.truncated[0]:
            break
    total = sum(entry["reward"] for entry in log)
    success = None if step.success is None else bool(step.success[0])
    assert earned == pytest.approx(whole(policy, Episode(total, success, len(log), {}, log)), abs=1e-3)
