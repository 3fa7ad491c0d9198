"""A policy server does with an artifact as the run's proof says: every algorithm, every action."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import grids
from grids import SIZE
from learnloop_api.kinds.behaviour import Behaviour
from learnloop_api.kinds.training.algorithms import ALGORITHMS, LANGUAGE, OWN
from learnloop_api.wire.training import Proof
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.engines import engine_run
from learnloop_trainer.evaluation import difference, play
from learnloop_trainer.evaluation.held_out_episodes import held_out
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.export.exported_policy import graph
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run
from testing.servers.policy_requests import ServedPolicy
from testing.training.recordings import recorded

EPISODES = 12
ON_POLICY = {"environments": 8, "horizon": 32, "epochs": 1, "minibatches": 1, "hidden": [16]}
OFF_POLICY = {"environments": 8, "hidden": [16], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}
TEAM = {"environments": 4, "hidden": [8], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}
FAMILY = [{"parameter": name, "low": -0.5, "high": 0.5} for name in ("goal_x", "goal_y")]
SAMPLED = {"kind": "sampled", "temperature": 0.7}
EXPLORING = {"kind": "epsilon-greedy", "epsilon": 0.2}
Case = tuple[str, str, dict[str, Any], dict[str, Any] | None]
CASES: dict[str, Case] = {  # name → algorithm, environment, hyperparameters, behaviour asked for
    "ppo, choices": ("ppo", "CartPole-v1", ON_POLICY, None),
    "ppo, greedy": ("ppo", "CartPole-v1", ON_POLICY, {"kind": "greedy"}),
    "ppo, numbers": ("ppo", "motion:PointGoals", ON_POLICY, None),
    "ppo, numbers drawn": ("ppo", "motion:PointGoals", ON_POLICY, SAMPLED),
    "ppo, hybrid": ("ppo", "motion:Courier", ON_POLICY, None),
    "ppo, hybrid drawn": ("ppo", "motion:Courier", ON_POLICY, SAMPLED),
    "dqn": ("dqn", "CartPole-v1", OFF_POLICY, None),
    "dqn, exploring": ("dqn", "CartPole-v1", OFF_POLICY, EXPLORING),
    "hierarchical-dqn": ("hierarchical-dqn", "grids:KeyDoor", OFF_POLICY, None),
    "sac": ("sac", "motion:PointGoals", {**OFF_POLICY, "environments": 4}, None),
    "sac, drawn": ("sac", "motion:PointGoals", {**OFF_POLICY, "environments": 4}, SAMPLED),
    "bc, choices": ("bc", "CartPole-v1", {"hidden": [16], "batchSize": 32}, None),
    "bc, numbers": ("bc", "motion:PointGoals", {"hidden": [16], "batchSize": 32}, None),
    "cql": ("cql", "CartPole-v1", {"hidden": [16], "batchSize": 32}, None),
    "cql, exploring": ("cql", "CartPole-v1", {"hidden": [16], "batchSize": 32}, EXPLORING),
    "iql-offline, choices": ("iql-offline", "CartPole-v1", {"hidden": [16], "batchSize": 32}, None),
    "iql-offline, numbers": ("iql-offline", "motion:PointGoals", {"hidden": [16], "batchSize": 32}, None),
    "iql-offline, numbers drawn": ("iql-offline", "motion:PointGoals", {"hidden": [16], "batchSize": 32}, SAMPLED),
    "iql-offline, hybrid": ("iql-offline", "motion:Courier", {"hidden": [16], "batchSize": 32}, None),
    "maml": ("maml", "motion:PointGoals", {"environments": 20, "episodes": 10, "hidden": [16]}, None),
    "independent-dqn": ("independent-dqn", "teams:TwoStep", TEAM, None),
    "qmix, exploring": ("qmix", "teams:TwoStep", TEAM, EXPLORING),
    "maddpg, numbers": ("maddpg", "teams:Relay", TEAM, None),
    "maddpg, hybrid": ("maddpg", "teams:RelayHybrid", TEAM, None),
}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[bytes], ServedPolicy]]:
    """Policy servers, stopped at the end."""
    servers: list[ServedPolicy] = []

    def begin(body: bytes) -> ServedPolicy:
        servers.append(ServedPolicy(body, tmp_path))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def alike(order: Order, served: ServedPolicy) -> ServedPolicy:
    """The server draws the numbers that evaluation drew."""
    served.server.arm.episodes._random = generator(Purpose.BEHAVIOUR, order.spec.seed, 0)
    return served


def trained(case: Case, make_order: Callable[..., Order], tmp_path: Path) -> tuple[Order, Proof, bytes]:
    algorithm, environment, parameters, behaviour = case
    block = dict(parameters)
    data = {"environment": environment}
    if traits_of(algorithm).recorded:
        recorded(environment, tmp_path / "log.jsonl")
        block["recording"] = (tmp_path / "log.jsonl").as_uri()
    if algorithm == "maml":
        data["randomise"] = FAMILY
    export = {"behaviour": behaviour} if behaviour else {}
    evaluation = {"episodes": EPISODES}
    changes = {"hyperparameters": block, "data": data, "export": export}
    order = make_order(algorithm, steps=512, seed=3, evaluation=evaluation, **changes)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    return order, proof, Path(urlsplit(proof.artifact_uri).path).read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_the_served_return_is_the_proven_one(name, make_order, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    order, proof, body = trained(CASES[name], make_order, tmp_path)
    options = CASES[name][3]
    assert options is None or proof.behaviour.kind == options["kind"]
    assert (proof.greedy is None) == (proof.behaviour.kind == "greedy")
    returns, _ = play(held_out(order), alike(order, serve(body)), order.spec.seed, EPISODES, lambda done: None)
    assert float(returns.mean()) == pytest.approx(proof.evaluation.mean, rel=1e-9)


SB3 = [(name, "CartPole-v1", {}) for name in ("a2c", "dqn", "qr-dqn", "ars")]
SB3 += [(name, "motion:PointGoals", {}) for name in ("a2c", "sac", "td3", "ddpg", "tqc", "crossq", "ars")]
SHORT = {"n_steps": 64, "batch_size": 32}
SB3 += [
    (name, world, SHORT) for name in ("ppo", "trpo", "recurrent-ppo") for world in ("CartPole-v1", "motion:PointGoals")
]
SIGHT = "testing.training.seen_worlds:"
SB3 += [(name, f"{SIGHT}Sides", SHORT) for name in ("ppo", "recurrent-ppo")]
SB3 += [(name, f"{SIGHT}Parts", SHORT) for name in ("trpo", "recurrent-ppo")]
SB3 += [(name, f"{SIGHT}{world}", {}) for name, world in (("qr-dqn", "Sides"), ("dqn", "Parts"), ("a2c", "Steered"))]
SB3 += [(name, f"{SIGHT}Steered", {"learning_starts": 140}) for name in ("td3", "tqc")]
SB3 += [("maskable-ppo", f"{SIGHT}Masked", SHORT | more) for more in ({}, {"policy": "MultiInputPolicy"})]


@pytest.mark.parametrize(("name", "world", "settings"), SB3)
def test_what_stable_baselines3_has_trained_is_served_as_it_is_proven(
    name: str, world: str, settings, make_order, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("PYTHONPATH", f"{Path(grids.__file__).parent}:{Path(__file__).parents[2]}")
    more = {"engine": "sb3", "settings": settings | {"normalize": True}, "hyperparameters": {}}
    order = make_order(name, steps=150, data={"environment": world}, evaluation={"episodes": EPISODES}, **more)
    engine_run.run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    body = Path(urlsplit(proof.artifact_uri).path).read_bytes()
    returns, _ = play(held_out(order), alike(order, serve(body)), order.spec.seed, EPISODES, lambda done: None)
    assert float(returns.mean()) == pytest.approx(proof.evaluation.mean, rel=1e-6)


FAST = {"n_envs": 8, "n_steps": 32, "batch_size": 64, "learning_rate": 3e-3}
LSTM = {"policy_kwargs": {"lstm_hidden_size": 16, "net_arch": [16]}}


@pytest.mark.parametrize(
    ("name", "world", "settings", "steps"),
    [("recurrent-ppo", "Recall", FAST | LSTM, 8000), ("maskable-ppo", "Masked", FAST, 4000)],
)
def test_memory_and_masks_are_learned_and_served(
    name: str, world: str, settings, steps: int, make_order, serve, tmp_path: Path, monkeypatch
) -> None:
    """Without memory the one returns 4 of 8 in the mean; without its mask the other loses 100 at every other step."""
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    more = {"engine": "sb3", "settings": settings, "hyperparameters": {}, "export": {"behaviour": {"kind": "greedy"}}}
    order = make_order(name, steps=steps, data={"environment": f"{SIGHT}{world}"}, evaluation={"episodes": 32}, **more)
    engine_run.run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    returns, _ = play(held_out(order), serve(Path(urlsplit(proof.artifact_uri).path).read_bytes()), 0, 32, print)
    assert returns.min() >= 0
    assert returns.mean() > 7


def test_no_algorithm_is_left_out() -> None:
    assert {algorithm for algorithm, *_ in CASES.values()} == set(OWN) - set(LANGUAGE)
    assert {name for name, *_ in SB3} == {one.name for one in ALGORITHMS.values() if "sb3" in one.engines}


def way_to_the_key_and_the_door() -> dict:
    """A perfect policy for grids:KeyDoor as Q-values that lie close together, as those of a discount near 1 do."""
    weight, bias = np.zeros((2 * SIZE + 1, 4), dtype=np.float32), np.zeros(4, dtype=np.float32)
    north, east, south, west = range(4)
    bias[[north, west]] = 0.1
    weight[-1, [north, west]], weight[-1, [south, east]] = -0.1, 0.1  # with the key, the other way
    weight[0, north] = weight[SIZE, west] = weight[SIZE - 1, south] = weight[2 * SIZE - 1, east] = -0.05  # at a wall
    return {"q.0.weight": weight, "q.0.bias": bias}


def test_a_policy_that_draws_for_itself_is_served_within_five_percent_of_its_proof(make_order, serve):
    """With random numbers of its own: the perfect policy of values, whose softmax is nearly uniform, stumbling."""
    order = make_order("dqn", data={"environment": "grids:KeyDoor"})
    stumbling = Behaviour(kind="epsilon-greedy", epsilon=0.1)
    body = graph(way_to_the_key_and_the_door(), "dqn", {}, None, None, stumbling)
    proven, _ = play(held_out(order), Behaving(OnnxPolicy(body, 21, 4), 0), 0, 200, lambda done: None)
    own = serve(body)
    own.server.arm.episodes._random.seed(5)
    served, _ = play(held_out(order), own, 0, 200, lambda done: None)
    gap = difference(served, proven, 0)
    assert gap.low <= 0 <= gap.high
    assert abs(gap.value) <= 0.05 * proven.mean()
    assert proven.mean() > 0.8
