"""Training under an action shield: what is executed, learned from, recorded and proven."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_api.kinds.behaviour import SAMPLED
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.kinds.training.environment_conditions import Intervention, Safety
from learnloop_common.acting.policy import Advice, log_probability
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_environments.rewarded_by_policy import Rewarded
from learnloop_trainer.action_shield import Shield
from learnloop_trainer.distributed import Alone
from learnloop_trainer.export import build
from learnloop_trainer.neural.networks import dense, forward_numpy
from learnloop_trainer.shielded_environment import Preferences, Shielded, Trail, shielded
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.rank import run

from .test_safety import conservative, outputs, replaced_by_policy

CPU = torch.device("cpu")


def random_masks(random: np.random.Generator, actions: int) -> Safety:
    """Up to three limits that hold here and there; the fallback is always allowed."""
    fallback = int(random.integers(actions))
    others = [action for action in range(actions) if action != fallback]
    constraints = [
        {
            "name": f"c{number}",
            "forbid": random.permutation(others)[: random.integers(1, actions)].tolist(),
            "when": [{"observation": int(random.integers(21)), "above": 0.5}] if number else [],
        }
        for number in range(random.integers(1, 4))
    ]
    return Safety.model_validate({"constraints": constraints, "fallback": [fallback]})


def executing(
    safety: Safety, count: int, preferences: Preferences, policy: bytes | None = None
) -> tuple[Shielded, list[np.ndarray]]:
    """KeyDoor behind a shield, and what reaches it."""
    inner = make("grids:KeyDoor", Split.TRAINING, 0, range(count))
    environment, reached, step = shielded(inner, safety, policy=policy), list[np.ndarray](), inner.step
    inner.step = lambda actions: reached.append(actions.copy()) or step(actions)
    assert isinstance(environment, Shielded)
    environment.preferences = preferences
    return environment, reached


@pytest.mark.parametrize("case", range(12))
@pytest.mark.parametrize("policy", [None, conservative(21, 4)], ids=["an action", "a policy"])
def test_training_executes_what_the_graph_does_whatever_is_forbidden(case: int, policy: bytes | None) -> None:
    random, count = np.random.default_rng(case), 64
    safety, weights = random_masks(random, 4), dense("q", [21, 8, 4], 1.0, case, 0)
    safety = replaced_by_policy(safety) if policy else safety

    def values(observation: np.ndarray) -> np.ndarray:
        return forward_numpy(weights, "q", "relu", observation)

    environment, reached = executing(safety, count, Preferences(values, False, case), policy)
    shield = Shield(safety, 21, 4, continuous=False, policy=policy)
    graph, instead = build(weights, "q", "relu", {}, None, shield), 0
    observation = environment.reset()
    for _ in range(5):
        wanted = values(observation).argmax(axis=1)
        (served,) = outputs(graph, observation, ["action"])
        over = shield.broken(observation, wanted).any(axis=0)
        if policy and over.any():
            (careful,) = outputs(policy, observation, ["logits"])
            best = np.where(shield.allowed(observation), careful, -np.inf).argmax(axis=1)
            assert np.array_equal(served[over], best[over])
            instead += int(over.sum())
        observation = environment.step(wanted).observation
        assert np.array_equal(reached[-1], served)
    assert environment.interventions.sum() > 0
    assert bool(instead) == bool(policy)


def test_training_draws_among_what_is_allowed_as_the_policy_server_does() -> None:
    safety = Safety.model_validate({"constraints": [{"name": "never", "forbid": [0, 2]}], "fallback": [1]})
    logits = np.float32([2.0, 0.5, 1.0, 0.0])
    count = 4096
    environment, reached = executing(safety, count, Preferences(lambda rows: np.tile(logits, (len(rows), 1)), True, 0))
    random, chances = np.random.default_rng(0), np.exp(logits) / np.exp(logits).sum()
    for _ in range(5):
        environment.step(random.choice(4, size=count, p=chances))
    shares = np.bincount(np.concatenate(reached), minlength=4) / (5 * count)
    masked = Shield(safety, 21, 4, continuous=False).mask(np.zeros((1, 21), dtype=np.float32), logits[None])[0][0]
    advice = Advice(1, masked.tolist())
    served = [math.exp(log_probability(SAMPLED, None, advice, action) or 0.0) for action in range(4)]
    assert shares == pytest.approx(served, abs=0.015)
    assert (shares[0], shares[2]) == (0, 0)


def test_every_learner_of_choices_says_what_it_prefers(make_order: Callable[..., Order]) -> None:
    never = {"constraints": [{"name": "never", "forbid": [1]}], "fallback": [0]}
    for algorithm, name in (("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("qmix", "teams:TwoStep")):
        block = {} if algorithm in ("ppo", "dqn") else {"hyperparameters": {"environments": 4, "hidden": [8]}}
        training = begin(make_order(algorithm, safety=never, data={"environment": name}, **block), Alone(), CPU)
        assert isinstance(training.environment, Shielded)
        assert training.environment.preferences.drawn == (algorithm == "ppo")
        training.learner.iterate(training.observation)
        assert training.environment.interventions.sum() > 0


def test_every_intervention_becomes_a_line_of_the_audit_record(tmp_path: Path) -> None:
    trail = Trail("drive-1", {"LEARNLOOP_AUDIT_LOG": str(tmp_path / "audit.jsonl")})
    never = {"name": "never right", "forbid": [1]}
    safety = Safety.model_validate({"constraints": [never], "fallback": [0]})
    environment = shielded(make("CartPole-v1", Split.TRAINING, 0, range(3)), safety, trail, exploring=True)
    assert isinstance(environment, Shielded)
    environment.step(np.array([0, 1, 0]))
    environment.step(np.array([1, 1, 0]))
    lines = [Intervention.model_validate(json.loads(line)) for line in trail.read().splitlines()]
    assert [line.agent_id for line in lines] == ["drive-1/1", "drive-1/0", "drive-1/1"]
    assert all(line.constraints == ["never right"] and line.fallback and line.exploration_flag for line in lines)
    assert all(line.reward == 1 and len(line.action_hash) == 64 for line in lines)
    assert environment.interventions.tolist() == [1, 2, 0]
    again = shielded(make("CartPole-v1", Split.TRAINING, 0, range(3)), safety, trail)
    assert isinstance(again, Shielded)
    again.restore(environment.state())
    assert again.interventions.tolist() == [1, 2, 0]


def test_an_intervention_may_cost_reward() -> None:
    spec = {"components": [{"name": "stopped", "type": "collision", "key": "interventions", "weight": 1, "scale": 2}]}
    limit = {"name": "often", "key": "interventions", "maximum": 8, "rewardAtMost": -99}
    safety = Safety.model_validate({"constraints": [{"name": "never", "forbid": [1]}], "fallback": [0]})
    for constraints in ([], [limit]):
        policy = RewardPolicySpec.model_validate(spec | {"constraints": constraints})
        world = shielded(Rewarded(make("CartPole-v1", Split.TRAINING, 0, range(1)), policy), safety)
        world.reset()
        steps = 0
        while not (step := world.step(np.ones(1, dtype=np.int64))).terminated[0]:
            steps += 1
        assert steps > 7
        assert step.reward.tolist() == [-99.0 if constraints else -(steps + 1) / 2]


def test_a_whole_run_obeys_its_constraints_and_its_proof_says_how_often_they_were_needed(
    make_order: Callable[..., Order], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("LEARNLOOP_AUDIT_LOG", str(tmp_path / "audit.jsonl"))
    leaning = {"name": "no push while leaning left", "forbid": [1], "when": [{"observation": 2, "below": -0.05}]}
    order = make_order(steps=512, safety={"constraints": [leaning], "fallback": [0]})
    run(order, Place(), 1)
    (proof,) = (json.loads(path.read_text()) for path in (tmp_path / "store").rglob("proof*.json"))
    assert proof["actions"] == 512
    assert 0 < proof["interventions"] < 512
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == proof["interventions"]
    (cost,) = proof["costs"]
    assert (cost["name"], cost["maximum"]) == ("interventions", None)
    assert cost["mean"] > 0, "the exported graph's own"
    assert cost["baseline"] > 0, "those of the shield before it"
    assert proof["audit_uri"]
    assert proof["parity"]["passed"]


PUSH = {"constraints": [{"name": "no push", "forbid": [1]}], "fallback": [0]}
STILL = {"constraints": [{"name": "still", "components": [0], "max": -2}], "fallback": [-2]}
TINY = {"environments": 4, "hidden": [8], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}


@pytest.mark.parametrize(
    ("algorithm", "name", "safety"),
    [
        ("dqn", "CartPole-v1", PUSH),
        ("independent-dqn", "teams:TwoStep", PUSH),
        ("qmix", "teams:TwoStep", PUSH),
        ("hierarchical-dqn", "grids:KeyDoor", PUSH),
        ("sac", "Pendulum-v1", STILL),
        ("maddpg", "teams:Relay", {"constraints": STILL["constraints"], "fallback": [-2]}),
        ("ppo", "CartPole-v1", PUSH),
    ],
)
def test_the_record_has_the_learners_own_estimate_of_what_it_wanted_where_it_has_one(
    make_order: Callable[..., Order], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, name: str, safety
) -> None:
    monkeypatch.setenv("LEARNLOOP_AUDIT_LOG", str(tmp_path / "audit.jsonl"))
    small = {} if algorithm == "ppo" else TINY
    order = make_order(algorithm, hyperparameters=small, data={"environment": name}, safety=safety)
    training = begin(order, Alone(), torch.device("cpu"))
    for _ in range(3):
        training.observation, _ = training.learner.iterate(training.observation)
    lines = [Intervention.model_validate_json(line) for line in Trail("x").read().splitlines()]
    assert lines
    if algorithm == "ppo":
        assert all(line.q_value is None for line in lines)
    else:
        assert all(line.q_value is not None for line in lines)
        assert len({line.q_value for line in lines}) > 1


def test_a_run_whose_fallback_is_unsafe_is_refused_before_it_begins(make_order: Callable[..., Order]) -> None:
    never = {"name": "never right", "forbid": [1]}
    with pytest.raises(ConfigError, match=r"spec.safety.fallback: .* breaks the constraint never right"):
        begin(make_order(safety={"constraints": [never], "fallback": [1]}), Alone(), torch.device("cpu"))
