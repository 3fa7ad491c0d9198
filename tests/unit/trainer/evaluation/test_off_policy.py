"""Judging a policy by what others logged: right where weights reach, honest where they do not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from learnloop_api.kinds.behaviour import GREEDY, Behaviour
from learnloop_common.acting.policy import advise, log_probability
from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import ActionSpace
from learnloop_trainer.algorithms.action_heads import fitting
from learnloop_trainer.distributed import Alone
from learnloop_trainer.evaluation.fitted_q import LoggedSteps
from learnloop_trainer.evaluation.off_policy import LEAST_EFFECTIVE, Terms, correct, evaluate
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.export.exported_policy import graph
from learnloop_trainer.neural.networks import dense
from learnloop_trainer.recordings import Mixture, Recording
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.training_environment import Unplayed
from testing.training.recordings import bandit

CPU = torch.device("cpu")
SPACES = "uniform://discrete/3?observations=3"


def terms(ratio: np.ndarray, reward: np.ndarray, model: float = 0.0) -> Terms:
    """Of episodes that all have as many steps, with a model that says the same of everything."""
    same = np.full(ratio.shape, model)
    return Terms(ratio, reward, same, same, np.zeros(ratio.shape), np.ones(ratio.shape))


def flips(episodes: int, chance: float, steps: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ratios and rewards of a log that takes either of two actions; the policy takes the paying one by `chance`."""
    paid = np.random.default_rng(seed).random((episodes, steps)) < 0.5
    return np.where(paid, chance, 1.0 - chance) / 0.5, paid.astype(np.float64)


def to_go(reward: np.ndarray) -> np.ndarray:
    return np.asarray(reward[:, ::-1].cumsum(axis=1)[:, ::-1])


def test_the_policy_that_logged_is_worth_what_was_logged_whatever_the_model_says() -> None:
    _, reward = flips(200, 0.5)
    estimate = correct(terms(np.ones_like(reward), reward, model=77.0), to_go(reward), 1.0, 0)
    assert estimate.value == pytest.approx(reward.sum(axis=1).mean())
    assert (estimate.gain, estimate.by_model) == (pytest.approx(0.0), 0.0)
    assert estimate.steps == 2
    assert estimate.gain_low == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("model", [0.0, 5.0, -20.0])
def test_where_weights_reach_a_wrong_model_costs_no_truth(model: float) -> None:
    ratio, reward = flips(4000, 0.9)
    estimate = correct(terms(ratio, reward, model), to_go(reward), 1.0, 0)
    assert estimate.low <= 1.8 <= estimate.high, "0.9 for each of two steps"
    assert abs(estimate.value - 1.8) < 0.1 * (1 + abs(model))
    assert estimate.gain_low > 0 or model


def test_where_weights_reach_their_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        ratio, reward = flips(300, 0.8, steps=3, seed=seed)
        estimate = correct(terms(ratio, reward, 0.5), to_go(reward), 1.0, seed)
        held += estimate.low <= 2.4 <= estimate.high
    assert held >= 186, "93 % of 200; 95 % are promised"


def test_a_model_that_learned_noise_makes_no_estimate_worse_than_none() -> None:
    random, often = np.random.default_rng(0), np.append(np.full(9, 0.06), 0.46)
    action, model = random.integers(0, 10, 1000), random.normal(0.0, 0.2, (1000, 10))
    ratio, reward = (often[action] / 0.1)[:, None], (random.random((1000, 1)) < 0.02).astype(np.float64)
    taken, value = model[np.arange(1000), action][:, None], (model @ often)[:, None]
    plain = correct(terms(ratio, reward), to_go(reward), 1.0, 0)
    noise = Terms(ratio, reward, taken, value, np.zeros((1000, 1)), np.ones((1000, 1)))
    noisy = correct(noise, to_go(reward), 1.0, 0)
    assert noisy.high - noisy.low < 1.1 * (plain.high - plain.low)
    assert abs(noisy.value - plain.value) < 0.1 * (plain.high - plain.low)


def test_few_rewards_tell_little_of_how_many_there_could_have_been() -> None:
    reward = np.zeros((200, 1))
    reward[:3] = 1.0
    estimate = correct(terms(np.ones((200, 1)), reward), to_go(reward), 1.0, 0)
    assert estimate.low <= 0.0031, "the exact interval of 3 in 200, by Clopper and Pearson"
    assert estimate.high >= 0.0432


@pytest.mark.parametrize(("ratio", "high"), [(1.0, 0.0183), (18.0, 0.08)])
def test_a_proof_without_any_of_the_rare_rewards_does_not_rule_them_out(ratio: float, high: float) -> None:
    """The exact interval of none in 200 by Clopper and Pearson; and of forty, which have the most weight."""
    weights = np.ones((200, 1)) if ratio == 1.0 else np.append(np.full(40, ratio), np.full(360, 0.1))[:, None]
    reward = np.zeros(weights.shape)
    logged = np.append(reward, [[1.0], [1.0]], axis=0)
    estimate = correct(terms(weights, reward), logged, 1.0, 0)
    assert estimate.low == 0
    assert estimate.high >= high - 1e-4
    assert estimate.gain_high >= (0.0 if ratio == 1.0 else high)


def test_what_nobody_did_in_the_log_widens_the_interval_to_all_that_was_ever_to_come() -> None:
    """The log never takes the action that the policy takes nine times in ten; the model is far too hopeful of it."""
    reward = np.random.default_rng(0).choice([-1.0, 1.0], (500, 1))
    estimate = correct(terms(np.full((500, 1), 0.1), reward, model=9.4), to_go(reward), 1.0, 0)
    assert estimate.low < -0.85, "nine in ten may have lost"
    assert estimate.high > 0.85, "or won"


def test_a_policy_that_does_worse_than_anybody_who_logged_is_within_the_interval() -> None:
    """The log lost one reward of ten at most; the policy loses all of them, which no episode shows."""
    reward = np.zeros((200, 10))
    reward[np.arange(200), np.random.default_rng(0).integers(0, 10, 200)] = -1.0
    estimate = correct(terms(np.full((200, 10), 0.01), reward, model=-0.5), to_go(reward), 1.0, 0)
    assert estimate.low < -9.0


def test_steps_that_too_few_episodes_speak_for_are_left_to_the_model_and_paid_for() -> None:
    ratio, reward = flips(400, 0.8, steps=12)
    estimate = correct(terms(ratio, reward, 0.0), to_go(reward), 1.0, 0)
    assert estimate.steps < 9, "after t steps 400 / 1.36^t episodes are left"
    assert estimate.effective >= LEAST_EFFECTIVE
    assert estimate.by_model > 1
    assert estimate.low <= 0.8 * 12 <= estimate.high


class Always:
    """A policy that does one thing."""

    def __init__(self, action: int) -> None:
        self._action = action

    def log_probability(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        return np.where(action == self._action, 0.0, -np.inf)

    def mixture(self, observation: np.ndarray) -> Mixture:
        count = len(observation)
        return Mixture(np.full((count, 1), self._action), np.ones((count, 1)))


def steps_of(actions: np.ndarray, log_prob: float = np.log(0.5)) -> LoggedSteps:
    """Episodes of one step; action 1 pays."""
    count = len(actions)
    ends, observations = np.ones(count, dtype=np.bool_), np.zeros((count, 2), dtype=np.float32)
    log_probs = np.full(count, log_prob, dtype=np.float32)
    return LoggedSteps.of(Recording(observations, actions, actions.astype(np.float32), log_probs, ends, ends))


def verdict(proof: LoggedSteps, action: int = 1):
    return evaluate(Always(action), proof, steps_of(np.arange(200) % 2), ActionSpace(3), 0.9, 0, CPU, 100)


def test_a_verdict_is_refused_where_it_would_be_a_guess() -> None:
    both = np.arange(200) % 2
    assert verdict(steps_of(both)).verdict
    few = verdict(steps_of(both[:49]))
    assert (few.verdict, few.refused) == (False, "49 logged episodes to judge by, 50 are the least")
    unknown = verdict(steps_of(both, np.nan))
    assert "without the log-probability of their action" in unknown.refused
    never = verdict(steps_of(both), action=2)
    assert not never.verdict
    assert "the policy does what was hardly ever logged" in never.refused


class Chance:
    """A policy that takes the second of two actions by a chance."""

    def __init__(self, chance: float) -> None:
        self._weight = np.array([1.0 - chance, chance])

    def log_probability(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(self._weight[action]))

    def mixture(self, observation: np.ndarray) -> Mixture:
        count = len(observation)
        return Mixture(np.tile([0, 1], (count, 1)), np.tile(self._weight, (count, 1)))


def same_reward(reward: float, length: int, episodes: int, seed: int) -> LoggedSteps:
    """Episodes that all are as long and earn the same at each step, whatever is done and seen."""
    random, count = np.random.default_rng(seed), length * episodes
    last = np.arange(1, count + 1) % length == 0
    states, action = random.normal(size=(count, 2)).astype(np.float32), random.integers(0, 2, count)
    log_probs = np.full(count, np.log(0.5), dtype=np.float32)
    return LoggedSteps.of(Recording(states, action, np.full(count, reward, dtype=np.float32), log_probs, last, last))


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(
    st.sampled_from([0.0, 1.0, -3.0, 0.1, 1e-6, 1e5]) | st.floats(-100, 100, width=32),
    st.integers(1, 12),
    st.sampled_from([0.5, 0.7, 0.95, 1.0]),
    st.sampled_from([0.1, 0.5, 0.8]),
)
def test_where_every_step_earns_the_same_every_policy_is_worth_what_was_logged(reward, length, discount, chance):
    proof, others = same_reward(reward, length, 100, 0), same_reward(reward, length, 60, 1)
    estimate = evaluate(Chance(chance), proof, others, ActionSpace(2), discount, 0, CPU, 20)
    truth = float(np.float32(reward)) * sum(discount**step for step in range(length))
    one, close = estimate.corrected, {"rel": 1e-9, "abs": 1e-300}
    assert one.value == pytest.approx(truth, **close)
    assert estimate.model == pytest.approx(truth, **close)
    assert one.gain == pytest.approx(0.0, abs=1e-9 * abs(truth))
    assert one.low <= truth + 1e-9 * abs(truth)
    assert one.high >= truth - 1e-9 * abs(truth)
    if not reward:
        assert "no logged step has a reward" in estimate.refused
    elif length == 1:
        assert estimate.verdict, estimate.refused


BEHAVIOURS = [GREEDY, Behaviour(kind="epsilon-greedy", epsilon=0.3), Behaviour(kind="sampled", temperature=0.7)]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=[one.kind for one in BEHAVIOURS])
@pytest.mark.parametrize("kind", ["choices", "numbers", "hybrid"])
def test_what_is_said_of_many_rows_is_what_a_policy_server_says_of_each(behaviour: Behaviour, kind: str) -> None:
    if kind != "choices" and behaviour.kind == "epsilon-greedy":
        pytest.skip("numbers are not drawn so")
    policy = exported(kind, behaviour)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    mixture = policy.mixture(observations)
    assert np.allclose(mixture.weight.sum(axis=1), 1.0)
    served = policy._policy.served
    advice = advise(served, observations)
    for column in range(mixture.action.shape[1]):
        done = mixture.action[:, column]
        log_probs = policy.log_probability(observations, done)
        for row, one in enumerate(advice):
            wanted = log_probability(behaviour, served.numbers, one, done[row].tolist())
            if wanted is None:
                assert np.isnan(log_probs[row])
            else:
                assert log_probs[row] == pytest.approx(wanted, abs=2e-4)
            if kind == "choices":
                assert np.log(max(mixture.weight[row, column], 1e-300)) == pytest.approx(
                    max(wanted or 0, -690.8), abs=0.1
                )


def exported(kind: str, behaviour: Behaviour) -> Behaving:
    """A policy of ppo's with random weights, as a policy server loads it."""
    spaces = {
        "choices": "uniform://discrete/3?observations=4",
        "numbers": "uniform://continuous/-1..1,0..3?observations=4",
        "hybrid": "uniform://hybrid/3/-1..1,0..3?observations=4",
    }
    world = Unplayed(spaces[kind], range(1))
    head = fitting(world)
    arrays = dense("policy", [4, 8, head.outputs], 1.0, 0, 0) | head.parameters()
    body = graph(arrays, "ppo", {"learnloop.algorithm": "ppo"}, world.bounds, None, behaviour)
    return Behaving(OnnxPolicy(body, 4, world.actions, continuous=world.bounds is not None), 0)


def test_what_stands_for_an_environment_knows_its_spaces_and_lets_nobody_play() -> None:
    world = Unplayed("uniform://hybrid/3/-1..1,0..2*2?observations=5", range(2))
    assert (world.observations, world.actions) == (5, 4)
    assert (world.bounds.low.tolist(), world.bounds.high.tolist()) == ([0, -1, 0, 0], [2, 1, 2, 2])
    assert world.reset().shape == (2, 5)
    with pytest.raises(ConfigError, match=r"spec.data.environment: '' is missing"):
        world.step(np.zeros((2, 4)))
    with pytest.raises(ConfigError, match=r"spec.data.spaces: 'uniform://discrete/2' has no length of an observation"):
        Unplayed("uniform://discrete/2", range(1))


def order(**changes) -> Order:
    spec = {
        "algorithm": "cql",
        "totalSteps": 20_000,
        "hyperparameters": {"hidden": [16], "batchSize": 32},
        "data": {"spaces": SPACES, "learningAgentRef": {"name": "la"}},
    }
    return Order.model_validate({"job": "alone-1", "spec": {**spec, **changes}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "ppo", "hyperparameters": {}}, "ppo plays it"),
        ({"shaping": {"potential": True}}, "spec.shaping plays it"),
    ],
)
def test_a_run_that_would_play_says_that_there_is_no_environment(changes: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        begin(order(**changes), Alone(), CPU)


def test_what_proves_is_never_learned_from_and_outlives_a_crash(tmp_path: Path) -> None:
    bandit(tmp_path / "trajectories" / "la.jsonl", episodes=300, steps=2)
    store = DirectoryStore(tmp_path, "alone-1")
    first = begin(order(), Alone(), CPU, store)
    first.observation, _ = first.learner.iterate(first.observation)
    proof, note = first.read.proof, first.read.note
    assert note.steps == 600 - len(proof.reward)
    assert 60 < proof.last.sum() < 120
    body = save(first, order(), Alone())
    bandit(tmp_path / "trajectories" / "la.jsonl", episodes=10, steps=2)  # what is logged later changes nothing
    again = begin(order(), Alone(), CPU, store)
    restore(again, order(), Alone(), body)
    assert np.array_equal(again.read.proof.observation, proof.observation)
    assert np.array_equal(again.read.proof.log_prob, proof.log_prob)
    first.learner.iterate(first.observation)
    again.learner.iterate(again.observation)
    assert first.learner.network.digest() == again.learner.network.digest()


def test_an_episode_proves_in_every_run_or_in_none(tmp_path: Path) -> None:
    proofs = []
    for seed, size in ((0, 200), (1, 300)):
        bandit(tmp_path / "trajectories" / "la.jsonl", episodes=size, steps=1)
        run = begin(order(seed=seed), Alone(), CPU, DirectoryStore(tmp_path, "alone-1"))
        run.learner.iterate(run.observation)
        proofs.append(run.read.proof.last.sum())
    assert proofs[0] < proofs[1], "the older ones again, and some of the new ones"
