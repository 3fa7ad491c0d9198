"""Evaluation, export, parity, baseline."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from learnloop_environments.errors import ConfigError
from learnloop_trainer import baseline_policy
from learnloop_trainer.errors import ExportError
from learnloop_trainer.evaluation import Policy, Uniform, difference, estimate, play
from learnloop_trainer.export import Behaving, OnnxPolicy, build, check
from learnloop_trainer.export.exported_policy import trained
from learnloop_trainer.neural.networks import Network, dense
from learnloop_trainer.store.run_store import DirectoryStore, digest
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_proof import recorded, verify, witnesses


@pytest.fixture
def network() -> Network:
    return Network(dense("policy", [4, 16, 16, 2], 1.0, 0, 0), torch.device("cpu"))


@pytest.fixture
def body(network: Network) -> bytes:
    return build(network.arrays(), "policy", "tanh", {"learnloop.algorithm": "ppo", "learnloop.job": "small-1"})


def observations(count: int = 2000) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def test_the_exported_graph_has_the_signature_and_the_facts_of_the_contract(body: bytes) -> None:
    model = onnx.load_from_string(body)
    properties = {item.key: item.value for item in model.metadata_props}
    assert properties == {
        "learnloop.algorithm": "ppo",
        "learnloop.job": "small-1",
        "learnloop.observations": "4",
        "learnloop.actions": "2",
    }
    assert model.ir_version <= 9
    assert model.opset_import[0].version <= 17
    assert [item.name for item in model.graph.input] == ["observation"]
    assert [item.name for item in model.graph.output] == ["action", "logits"]
    action, logits = OnnxPolicy(body, 4, 2).run(observations(5))
    assert (action.dtype, action.shape, logits.dtype, logits.shape) == (np.int64, (5,), np.float32, (5, 2))


def test_the_same_weights_give_the_same_bytes(network: Network, body: bytes) -> None:
    again = build(network.arrays(), "policy", "tanh", {"learnloop.algorithm": "ppo", "learnloop.job": "small-1"})
    assert digest(again) == digest(body)


def test_the_exported_graph_passes_parity(network: Network, body: bytes) -> None:
    parity = check(trained(network, "ppo"), OnnxPolicy(body, 4, 2), observations(), 10)
    assert parity.passed
    assert (parity.observations, parity.recorded, parity.action_agreement) == (2000, 10, 1.0)
    assert parity.max_abs_difference < 1e-5


def corrupted(body: bytes, change: Callable[[np.ndarray], np.ndarray]) -> bytes:
    model = onnx.load_from_string(body)
    tensor = model.graph.initializer[2]
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)).astype(np.float32), tensor.name))
    return bytes(model.SerializeToString())


def test_a_graph_whose_weights_are_no_numbers_is_not_even_loaded(body: bytes) -> None:
    with pytest.raises(ValueError, match="does not run on zeros: the policy's logits are not finite"):
        OnnxPolicy(corrupted(body, lambda w: w * np.nan), 4, 2)


@pytest.mark.parametrize("change", [lambda w: w + 1e-3, lambda w: -w])
def test_parity_catches_a_graph_whose_weights_are_not_the_networks(network: Network, body: bytes, change) -> None:
    parity = check(trained(network, "ppo"), OnnxPolicy(corrupted(body, change), 4, 2), observations(), 0)
    assert not parity.passed


def test_a_graph_that_fails_parity_is_never_stored(network: Network, body: bytes) -> None:
    policy = OnnxPolicy(corrupted(body, lambda w: -w), 4, 2)
    with pytest.raises(ExportError, match=r"actions agree on .*; nothing was stored"):
        verify(trained(network, "ppo"), policy, observations(100), 2)


def test_recorded_observations_come_first_and_are_topped_up(make_order: Callable[..., Order], tmp_path: Path) -> None:
    (tmp_path / "observations").mkdir()
    rows = [[0.1, 0.2, 0.3, 0.4]] * 30 + [[1.0]]
    (tmp_path / "observations" / "pole.json").write_text(f'{{"observations": {rows}}}')
    data = {"environment": "CartPole-v1", "learningAgentRef": {"name": "pole"}}
    order, store = make_order(data=data), DirectoryStore(tmp_path, "small-1")
    assert recorded(order, store, 4).shape == (30, 4)
    met = observations(100)
    chosen, real = witnesses(order, store, met, 2)
    assert (real, chosen.shape) == (30, (10_000, 4))
    assert (chosen[:30] == np.float32([0.1, 0.2, 0.3, 0.4])).all()
    assert np.array_equal(chosen[30:130], met)


def test_the_uniform_policys_return_on_cartpole_is_the_known_one() -> None:
    returns, met = play("CartPole-v1", Uniform(2, 0), 0, 300, lambda done: None)
    result = estimate(returns, 0)
    assert result.ci_low < 22.2 < result.ci_high  # 22.2: mean over many thousand episodes
    assert met.shape[1] == 4


def test_the_interquartile_mean_ignores_the_best_and_the_worst_quarter() -> None:
    for returns, middle in (([-1000.0, 1, 2, 3, 4, 5, 6, 1000], 3.5), ([7.0], 7)):
        measured = estimate(np.array(returns), 0)
        assert measured.iqm == middle


def test_an_interval_covers_the_mean_about_95_times_in_100() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        result = estimate(random.normal(10, 3, 60), seed, resamples=300)
        covered += result.ci_low <= 10 <= result.ci_high
    assert 180 <= covered <= 198
    assert estimate(np.array([]), 0) is None


def returns_on_cartpole(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Skewed and capped, as returns are: a third reaches the limit of 500 steps."""
    return np.minimum(500.0, 50 + random.exponential(400, shape))


@pytest.mark.parametrize("episodes", [6, 20, 100])
@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_an_equal_policy_seems_better_in_at_most_one_of_forty_runs(episodes: int, alike: float) -> None:
    random, passed, runs = np.random.default_rng(episodes), 0, 1000
    for seed in range(runs):
        ours, others = returns_on_cartpole(random, (2, episodes))
        others = np.where(random.random(episodes) < alike, ours, others)
        interval = difference(ours, others, seed, subsets=400)
        passed += interval.low > 0
    assert passed / runs < 0.025 + 3 * np.sqrt(0.025 * 0.975 / runs)


def test_a_gain_that_pairing_shows_is_found_and_covered_by_its_interval() -> None:
    random, covered = np.random.default_rng(0), 0
    for seed in range(300):
        start = random.normal(0, 50, 60)  # how hard an episode is; both policies play the same ones
        interval = difference(start + random.normal(3, 4, 60), start, seed, subsets=1000)
        assert interval.low > 0
        covered += interval.low <= 3 <= interval.high
    assert 275 <= covered <= 297


def test_a_policy_against_itself_gains_exactly_nothing() -> None:
    returns = returns_on_cartpole(np.random.default_rng(0), (50,))
    interval = difference(returns, returns, 0)
    assert (interval.low, interval.value, interval.high) == (0, 0, 0)
    assert difference(returns[:5], returns[5:10], 0) is None
    with pytest.raises(ValueError, match="not those of the same episodes"):
        difference(returns, returns[1:], 0)


def loaded(order: Order, store: DirectoryStore, observations: int, actions: int) -> Policy:
    return baseline_policy.policy(order, baseline_policy.artifact(order, store), observations, actions)


def test_a_serving_policy_is_the_baseline_when_its_digest_is_right(body, make_order, tmp_path):
    store = DirectoryStore(tmp_path, "small-1")
    store.put_artifact(body)
    changes = {"baseline_uri": f"learnloop://default/{digest(body)}", "baseline_sha256": digest(body)}
    assert isinstance(loaded(make_order().model_copy(update=changes), store, 4, 2), Behaving)
    with pytest.raises(ConfigError, match=r"baselineSha256: '0+' is not the digest"):
        loaded(make_order().model_copy(update=changes | {"baseline_sha256": "0" * 64}), store, 4, 2)
    with pytest.raises(ConfigError, match="takes 4 observations, the environment has 6"):
        loaded(make_order().model_copy(update=changes), store, 6, 2)
    with pytest.raises(ConfigError, match="has 2 actions, the environment has 3"):
        loaded(make_order().model_copy(update=changes), store, 4, 3)


@pytest.mark.parametrize(
    "uri", ["learnloop://default/" + "1" * 64, "file:///nowhere.onnx", "s3://bucket/key", "file:///etc/hostname"]
)
def test_a_baseline_that_leads_nowhere_is_refused_with_the_fix(uri, make_order, tmp_path):
    order = make_order().model_copy(update={"baseline_uri": uri})
    with pytest.raises(ConfigError, match=rf"baselineUri: '{uri}.*; (point|use)"):
        loaded(order, DirectoryStore(tmp_path, "small-1"), 4, 2)
