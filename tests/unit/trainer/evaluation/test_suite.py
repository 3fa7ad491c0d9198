"""The evaluation suite against policies whose answers are known."""

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.evaluation import DIMENSIONS, Suite
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import NOMINAL
from learnloop_environments.spaces import Observations
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.algorithms.ppo import Ppo
from learnloop_trainer.algorithms.weight_transfer import warm
from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import NumericError
from learnloop_trainer.evaluation import Policy, Uniform, collect
from learnloop_trainer.evaluation.suite import Stage, dimensions, disturbances as fine_tuning, measure
from learnloop_trainer.evaluation.suite.dimensions import Milestones, overall
from learnloop_trainer.evaluation.suite.disturbances import FIRST, Noisy, NotMeasured, Sticky
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.export.exported_policy import graph
from learnloop_trainer.shielded_environment import Shielded
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_proof import VALIDATION
from learnloop_trainer.training_run.policy_training import begin

Orders = Callable[..., Order]
PPO = traits_of("ppo")
CPU = torch.device("cpu")


class Sighted:
    """Pushes the cart to where the pole falls: nearly perfect, as long as it sees well."""

    def act(self, observation: Observations) -> NDArray:
        return (observation[:, 2] + 0.5 * observation[:, 3] > 0).astype(np.int64)


class Blind:
    """To and fro, whatever it sees."""

    def __init__(self) -> None:
        self.requests = 0

    def act(self, observation: Observations) -> NDArray:
        self.requests += 1
        return np.full(len(observation), self.requests % 2, dtype=np.int64)


class Always:
    """The same action always."""

    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, observation: Observations) -> NDArray:
        return np.full(len(observation), self.action, dtype=np.int64)


def stage(order: Order, policy: Policy, baseline: Policy | None = None, **suite) -> Stage:
    world = make(order.spec.data.environment, Split.HELD_OUT, 0, range(1))
    met = collect(order.spec.data.environment, world.actions, 0, 500, world.bounds)
    return Stage(
        order=order,
        suite=Suite(**{"episodes": 32, "noise": 1.0, **suite}),
        policy=policy,
        baseline=baseline or Uniform(world.actions, 0, world.bounds),
        policy_of=lambda weights: policy,
        weights={},
        milestones={},
        met=met,
        device=CPU,
        alive=lambda message: None,
    )


def test_a_policy_that_ignores_noise_keeps_its_return_and_one_that_does_not_loses_it(make_order: Orders) -> None:
    sighted = dimensions.robustness(stage(make_order(), Sighted()))
    blind = dimensions.robustness(stage(make_order(), Blind()))
    assert sighted.conditions == ["noise 1", "20% of actions repeated"]
    assert sighted.reference[0].mean() == 500
    assert sighted.ours[0].mean() < 300
    error = blind.ours[0].std() / np.sqrt(32) + blind.reference[0].std() / np.sqrt(32)
    assert abs(blind.ours[0].mean() - blind.reference[0].mean()) < 4 * error


def test_noise_has_the_deviation_asked_for_and_leaves_the_rewards_alone() -> None:
    def world():
        return make("CartPole-v1", Split.HELD_OUT, 0, range(4096))

    plain, noisy = world(), Noisy(world(), np.array([1.0, 0.0, 2.0, 0.5]), seed=3)
    difference = noisy.reset() - plain.reset()
    assert difference.std(axis=0) == pytest.approx([1.0, 0.0, 2.0, 0.5], rel=0.05)
    actions = np.zeros(4096, dtype=np.int64)
    assert np.array_equal(noisy.step(actions).reward, plain.step(actions).reward)


def test_a_sticky_world_repeats_the_share_of_actions_asked_for_within_an_episode() -> None:
    executed = []
    inner = make("teams:TwoStep", Split.HELD_OUT, 0, range(4096))
    original = inner.step
    inner.step = lambda actions: executed.append(actions.copy()) or original(actions)
    sticky = Sticky(inner, 0.25, seed=0)
    sticky.reset()
    for wanted in (0, 1, 0, 1):  # an episode has two steps
        sticky.step(np.full((4096, 2), wanted, dtype=np.int64))
    assert (executed[0] == 0).all()
    assert (executed[1] == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert (executed[2] == 0).all()  # the first action of a new episode


def test_every_condition_has_episodes_that_no_other_has(make_order: Orders) -> None:
    judged = stage(make_order(), Sighted())
    numbers = []
    for dimension in DIMENSIONS:
        judged.enter(dimension, time.monotonic() + 9)
        numbers += [judged.fresh() for _ in range(10)]
    assert min(numbers) >= FIRST > VALIDATION + 10_000  # episodes and validationEpisodes are 10,000 at most
    assert min(np.diff(sorted(numbers))) >= 1000  # evaluation.suite.episodes is 1,000 at most


def test_generalisation_plays_every_other_level_and_compares_with_training_seeds(make_order: Orders) -> None:
    order = make_order(data={"environment": "motion:Manipulation", "level": "advanced"})
    bounds = make("motion:Manipulation", Split.TRAINING, 0, range(1)).bounds
    result = dimensions.generalisation(stage(order, Uniform(7, 1, bounds)))
    assert result.conditions == ["unseen episodes", "level beginner", "level intermediate", "level expert"]
    assert result.compared == "episodes with training's seeds"
    with pytest.raises(NotMeasured, match="CartPole-v1 has one agent"):
        dimensions.coordination(stage(make_order(), Sighted()))


def test_a_team_is_judged_with_each_member_replaced_by_the_serving_policy(make_order: Orders) -> None:
    order = make_order(data={"environment": "teams:TwoStep"})
    ours, serving = Always(1), Always(0)
    result = dimensions.coordination(stage(order, ours, serving))
    assert result.conditions == ["agent 0 follows the serving policy", "agent 1 follows the serving policy"]
    # Agent 0 chooses the second game by its first 1; both must choose 1 there for the payoff of 8 (else 1 or 0).
    assert result.reference[0].mean() > max(float(returns.mean()) for returns in result.ours)
    assert len({returns.mean() for returns in result.baseline}) == 1


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_policy_is_exactly_as_good_as_itself_in_every_dimension(make_order: Orders, algorithm: str) -> None:
    order = make_order(algorithm)
    training = begin(order, Alone(), CPU)
    parameters, _ = training.learner.network.exported(), training.environment.close()

    def policy_of(weights) -> Policy:
        return OnnxPolicy(graph(weights, algorithm, {}, None, None), 4, 2)

    itself = stage(order, policy_of(parameters), policy_of(parameters), episodes=8, adaptationSteps=256)
    itself.policy_of, itself.weights = policy_of, parameters
    itself.milestones = {200: begin(make_order(algorithm, seed=1), Alone(), CPU).learner.network.exported()}
    result = measure(itself, np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    measured = [one.improvement.value for one in result.results if one.improvement is not None]
    assert measured == [0.5] * 4  # one agent: no coordination
    assert result.overall == 0.5


def test_what_finds_no_time_left_is_reported_and_fails_nothing(make_order: Orders) -> None:
    hurried = stage(make_order(), Sighted())
    hurried.suite = hurried.suite.model_copy(update={"max_seconds": 0})
    result = measure(hurried, np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert [one.message.split(":")[0] for one in result.results[1:3]] == ["no time left"] * 2
    assert result.improvement.value == 1.0
    assert result.overall is None


def test_a_world_that_breaks_when_it_is_changed_costs_its_dimension_and_not_the_proof(make_order: Orders) -> None:
    class Broken:
        def act(self, observation: Observations) -> NDArray:
            raise NumericError("step 3: observation has a NaN")

    result = measure(stage(make_order(), Broken(), dimensions=["robustness"]), np.array([3.0]), np.array([1.0]))
    assert result.results[0].message == "step 3: observation has a NaN"


def test_the_overall_score_shares_out_the_weight_of_what_was_not_measured(make_order: Orders) -> None:
    lively = stage(make_order(), Sighted(), dimensions=["robustness", "generalisation", "coordination"])
    result = measure(lively, np.array([3.0]), np.array([1.0]))
    chances = [one.improvement.value for one in result.results if one.improvement]
    assert len(chances) == 2
    assert overall(result.results) == pytest.approx(np.mean(chances))  # both weigh 0.2


def test_milestones_are_kept_at_each_fifth_and_survive_a_restart(make_order: Orders) -> None:
    training = begin(make_order(steps=1000, evaluation={"suite": {}}), Alone(), CPU)
    milestones, network = training.milestones, training.learner.network
    for step in range(0, 1200, 64):
        milestones.note(step, step + 64, network)
    assert list(milestones.snapshots) == [256, 448, 640, 832, 1024]
    assert {name.split(".")[0] for name in milestones.snapshots[256]} == {"policy"}
    again = Milestones(1000, ["policy"])
    again.restore(milestones.state())
    assert again.snapshots.keys() == milestones.snapshots.keys()
    assert all(np.array_equal(again.snapshots[256][name], array) for name, array in milestones.snapshots[256].items())


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_warm_learner_has_the_weights_given_and_its_targets_too(make_order: Orders, algorithm: str) -> None:
    giver = begin(make_order(algorithm), Alone(), CPU).learner
    taker = begin(make_order(algorithm, seed=1), Alone(), CPU).learner
    assert taker.network.digest() != giver.network.digest()
    warm(taker, giver.network.arrays(), traits_of(algorithm))
    assert taker.network.digest() == giver.network.digest()
    if algorithm == "dqn":
        assert torch.equal(taker.targets[""], taker.network.vector)


SHIELD = {"constraints": [{"name": "never left", "forbid": [0]}], "fallback": [1]}


@pytest.mark.parametrize(("algorithm", "successor"), [("ppo", Ppo), ("dqn", Dqn), ("bc", Ppo), ("cql", Dqn)])
def test_a_student_goes_on_under_the_shield_with_its_own_preferences(make_order, algorithm, successor, monkeypatch):
    """Else a shield executes its fallback in fine-tuning, and takes the best allowed action everywhere else."""
    block = {algorithm: {"hidden": [8]}}
    order = make_order(algorithm, **block, safety=SHIELD, evaluation={"suite": {"adaptationSteps": 1}})
    judged = stage(order, Uniform(2, 0), adaptation_steps=1)
    judged.enter("adaptability", float("inf"))
    learner = begin(make_order(algorithm, **block), Alone(), torch.device("cpu")).learner
    met = []

    def iterate(student, observations: Observations) -> tuple[Observations, list]:
        met.append(student)
        student.step += 1_000_000
        return observations, []

    monkeypatch.setattr(successor, "iterate", iterate)
    fine_tuning.tuned(judged, learner.network.exported(), NOMINAL)
    (student,) = met
    assert isinstance(student.environment, Shielded)
    preferences = student.environment.preferences
    assert preferences.drawn == (successor is Ppo)
    assert student.network.shapes == learner.network.shapes | {
        name: shape for name, shape in student.network.shapes.items() if name.startswith("value")
    }
    for name, array in learner.network.exported().items():
        np.testing.assert_array_equal(student.network.arrays()[name], array)
