"""A policy server does with an artifact as the run's proof says: every algorithm, every action."""

import sys
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
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.baseline_policy import with_fallback
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


NUMBERS = {"constraints": [{"name": "gentle", "components": [0, 1], "maxNorm": 0.3}]}
CHOICES = {"constraints": [{"name": "not while it leans", "forbid": [1], "when": [{"observation": 2, "below": 0.03}]}]}


@pytest.mark.parametrize(("name", "safety"), [("ppo, choices", CHOICES), ("ppo, numbers", NUMBERS)])
def test_a_fallback_policy_is_served_with_the_policy_as_it_was_proven(
    name: str, safety: dict, make_order, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("LEARNLOOP_AUDIT_LOG", str(tmp_path / "audit.jsonl"))
    algorithm, environment, parameters, _ = CASES[name]
    _, careful, _ = trained(CASES[name], make_order, tmp_path)

    def guarded(sha256: str) -> Order:
        named = {"uri": careful.artifact_uri, "sha256": sha256}
        shield = {"safety": {**safety, "fallbackPolicy": named}, "export": {"formats": ["torchscript"]}}
        rest = {"hyperparameters": parameters, "data": {"environment": environment}, "evaluation": {"episodes": 12}}
        order = make_order(algorithm, steps=512, seed=4, **rest, **shield)
        return order.model_copy(update={"job": "guarded"})

    with pytest.raises(ConfigError, match=r"spec.safety.fallbackPolicy.sha256: '0+' is not the digest of"):
        run(guarded("0" * 64), Place(), 1)
    order = guarded(careful.artifact_sha256)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", "guarded").proof()
    assert proof.interventions > 0
    assert [(item.format, item.parity.passed) for item in proof.exports] == [("torchscript", True)]
    body = Path(urlsplit(proof.artifact_uri).path).read_bytes()
    order = with_fallback(order, DirectoryStore(tmp_path / "store", "guarded"))
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


IMAGE = """
import json, os
from pathlib import Path
import numpy as np
from onnx import TensorProto, helper, numpy_helper

folder = Path(os.environ["LEARNLOOP_ENGINE_DIRECTORY"])
order = json.loads((folder / "order.json").read_text())
random, width, remembered = np.random.default_rng(order["seed"]), order["observations"], order["settings"]["memory"]
choices = order["choices"] if order["low"] else order["actions"]
numbers = len(order["low"] or []) - bool(order["choices"]) if order["low"] else 0
weights = random.normal(size=(width + remembered, choices + numbers)).astype(np.float32)
constants = {"weights": weights, "parts": np.asarray([choices, numbers]), "half": np.float32([0.5])}
constants["next"] = random.normal(size=(width + remembered, remembered)).astype(np.float32)
nodes = [("Concat", ["observation", "memory"], ["input"], {"axis": 1})] if remembered else []
nodes += [] if remembered else [("Identity", ["observation"], ["input"], {})]
nodes += [("MatMul", ["input", "weights"], ["raw"], {})]
nodes += [("Split", ["raw", "parts"], ["logits", "numbers"], {"axis": 1})]
outputs = {"logits": (TensorProto.FLOAT, ["batch", choices])} if choices else {}
if numbers:
    low, high = (np.float32(order[side][bool(choices):]) for side in ("low", "high"))
    constants |= {"reach": (high - low) / 2, "centre": (high + low) / 2}
    nodes += [("Tanh", ["numbers"], ["tanh"], {}), ("Mul", ["tanh", "reach"], ["scaled"], {})]
    nodes += [("Add", ["scaled", "centre"], ["placed"], {}), ("Identity", ["numbers"], ["mean"], {})]
    nodes += [("Mul", ["numbers", "half"], ["less"], {}), ("Sub", ["less", "less"], ["none"], {})]
    nodes += [("Add", ["none", "half"], ["deviation"], {})]
    outputs |= {name: (TensorProto.FLOAT, ["batch", numbers]) for name in ("mean", "deviation")}
if choices and numbers:
    nodes += [("ArgMax", ["logits"], ["best"], {"axis": 1}), ("Cast", ["best"], ["first"], {"to": TensorProto.FLOAT})]
    nodes += [("Concat", ["first", "placed"], ["action"], {"axis": 1})]
elif choices:
    nodes += [("ArgMax", ["logits"], ["action"], {"axis": 1, "keepdims": 0})]
else:
    nodes += [("Identity", ["placed"], ["action"], {})]
outputs["action"] = (TensorProto.FLOAT, ["batch", order["actions"]]) if numbers else (TensorProto.INT64, ["batch"])
inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", width])]
if remembered:
    inputs.append(helper.make_tensor_value_info("memory", TensorProto.FLOAT, ["batch", remembered]))
    nodes += [("MatMul", ["input", "next"], ["mixed"], {}), ("Tanh", ["mixed"], ["next_memory"], {})]
    outputs["next_memory"] = (TensorProto.FLOAT, ["batch", remembered])
made = [helper.make_node(kind, given, taken, **more) for kind, given, taken, more in nodes]
results = [helper.make_tensor_value_info(name, *form) for name, form in outputs.items()]
arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
graph = helper.make_graph(made, "drawn", inputs, results, arrays)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

import onnxruntime
session, memory, episode = onnxruntime.InferenceSession(model.SerializeToString()), np.zeros((1, remembered)), []
rows = random.normal(size=(20, width)).astype(np.float32)
for row in rows:
    given = {"observation": row[None]} | ({"memory": memory.astype(np.float32)} if remembered else {})
    taken = dict(zip(outputs, session.run(list(outputs), given), strict=True))
    memory = taken.get("next_memory", memory)
    episode.append(taken["action" if numbers else "logits"][0].tolist())
result = {"step": order["total_steps"], "behaviour": order["behaviour"]}
result["witness"] = {"observations": rows.tolist(), "outputs": episode}
bodies = {"checkpoint": b"1", "heartbeat.json": b'{"step": 1}', "policy.onnx": model.SerializeToString()}
for name, body in (bodies | {"result.json": json.dumps(result).encode()}).items():
    (folder / "new").write_bytes(body)
    (folder / "new").rename(folder / name)
"""
"""Hands in a random linear policy for whatever spaces there are, which remembers as many numbers as it is asked to."""


@pytest.mark.parametrize("memory", [0, 4], ids=["plain", "remembers"])
@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("world", ["CartPole-v1", "motion:PointGoals", "motion:Courier"])
def test_what_an_image_hands_in_is_served_as_it_is_proven(
    world: str, kind: str, memory: int, make_order, serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    (tmp_path / "train.py").write_text(IMAGE)
    own = {"pod": {"image": "own", "command": ["own"]}, "settings": {"memory": memory}, "hyperparameters": {}}
    own |= {"export": {"behaviour": {"kind": kind}}, "evaluation": {"episodes": EPISODES}}
    order = make_order("custom", steps=1, data={"environment": world}, **own)
    engine_run.run(order, Place(), 1, [sys.executable, str(tmp_path / "train.py")])
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    body = Path(urlsplit(proof.artifact_uri).path).read_bytes()
    proven = {"seed": proof.held_out.seed, "first_episode": proof.held_out.first}
    evaluation = order.spec.evaluation.model_copy(update=proven)
    judged = order.model_copy(update={"spec": order.spec.model_copy(update={"evaluation": evaluation})})
    returns, _ = play(held_out(judged), alike(order, serve(body)), order.spec.seed, EPISODES, lambda done: None)
    assert float(returns.mean()) == pytest.approx(proof.evaluation.mean, rel=1e-6)
