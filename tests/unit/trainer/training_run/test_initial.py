"""Training that begins from another policy."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.study import InitialPolicy
from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import Bounds
from learnloop_trainer.distributed import Alone
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.export.exported_policy import graph
from learnloop_trainer.store.run_store import DirectoryStore, digest
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.policy_training import begin

Orders = Callable[..., Order]
CPU = torch.device("cpu")


def exported(order: Order, store: DirectoryStore) -> tuple:
    """URI, digest and learner of a policy trained for a moment."""
    training = begin(order, Alone(), CPU)
    training.observation, _ = training.learner.iterate(training.observation)
    learner, algorithm = training.learner, order.spec.algorithm
    facts = {"learnloop.algorithm": algorithm, "learnloop.job": order.job}
    body = graph(learner.network.exported(), algorithm, facts, learner.environment.bounds, None)
    return store.put_artifact(body), digest(body), learner


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_run_begins_from_the_weights_of_the_policy_it_names(make_order, algorithm, tmp_path):
    store = DirectoryStore(tmp_path, "small-1")
    uri, sha256, giver = exported(make_order(algorithm, seed=5), store)
    warmed = begin(make_order(algorithm, initialPolicy={"uri": uri, "sha256": sha256}), Alone(), CPU, store).learner
    cold = begin(make_order(algorithm), Alone(), CPU, store).learner
    name = "policy" if algorithm == "ppo" else "q"
    given, taken, random = (side.network.arrays() for side in (giver, warmed, cold))
    heads = [key for key in given if key.startswith(f"{name}.")]
    assert heads
    assert all(np.array_equal(given[key], taken[key]) for key in heads)
    assert not all(np.array_equal(given[key], random[key]) for key in heads)
    if algorithm == "ppo":
        assert all(np.array_equal(taken[key], random[key]) for key in taken if key.startswith("value."))


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "motion:Courier"])
def test_a_policy_that_saw_normalised_observations_acts_alike_where_a_run_begins_from_it(
    make_order: Orders, tmp_path: Path, environment: str
) -> None:
    def order(**changes) -> Order:
        ppo = {"environments": 8, "horizon": 16, "hidden": [16], "normaliseObservations": True}
        return make_order(hyperparameters=ppo, data={"environment": environment}, **changes)

    store = DirectoryStore(tmp_path, "small-1")
    uri, _, giver = exported(order(seed=5), store)
    warmed = begin(order(initialPolicy={"uri": uri}), Alone(), CPU, store).learner
    world = giver.environment
    facts = {"learnloop.algorithm": "ppo"}
    pair = [
        OnnxPolicy(
            graph(side.network.exported(), "ppo", facts, world.bounds, None),
            world.observations,
            world.actions,
            continuous=world.bounds is not None,
        )
        for side in (giver, warmed)
    ]
    observations = np.random.default_rng(0).normal(0.0, 3.0, size=(64, world.observations)).astype(np.float32)
    ours, others = (policy.run(observations)[1] for policy in pair)
    assert np.allclose(ours, others, atol=1e-4)


def test_the_means_of_a_continuous_policy_are_taken_and_its_deviations_are_not(make_order, tmp_path):
    store = DirectoryStore(tmp_path, "small-1")
    data, sac = {"environment": "Pendulum-v1"}, {"environments": 8, "hidden": [16], "bufferSize": 1000}
    order = make_order("sac", hyperparameters=sac, data=data)
    uri, _, giver = exported(order, store)
    seeded = make_order("sac", hyperparameters=sac, data=data, seed=1, initialPolicy={"uri": uri})
    taker = begin(seeded, Alone(), CPU, store).learner
    given, taken = giver.network.arrays()["actor.1.weight"], taker.network.arrays()["actor.1.weight"]
    assert np.array_equal(given[:, :1], taken[:, :1])
    assert not np.array_equal(given[:, 1:], taken[:, 1:])
    assert isinstance(taker.environment.bounds, Bounds)


def test_the_serving_policy_is_begun_from_where_one_serves(make_order, tmp_path, capsys):
    store = DirectoryStore(tmp_path, "small-1")
    uri, sha256, giver = exported(make_order(seed=5), store)
    order = make_order(initialPolicy={"serving": True})
    serving = order.model_copy(update={"baseline_uri": uri, "baseline_sha256": sha256})
    taken = begin(serving, Alone(), CPU, store).learner.network.arrays()
    assert np.array_equal(taken["policy.0.weight"], giver.network.arrays()["policy.0.weight"])
    begin(order, Alone(), CPU, store)
    assert "begins from random weights: no learned policy serves yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"hyperparameters": {"environments": 8, "hidden": [8]}},
            r"does not fit: policy.0.weight has shape \[4, 16\].* \[4, 8\]",
        ),
        ({"hyperparameters": {"environments": 8, "hidden": [16, 16]}}, "policy has 2 layers, this network's has 3"),
        ({"algorithm": "dqn", "hyperparameters": {}}, "was trained by ppo, whose network differs"),
        ({"data": {"environment": "teams:TwoStep"}, "algorithm": "qmix", "hyperparameters": {}}, "was trained by ppo"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_with_the_fix(make_order, tmp_path, changes, words):
    store = DirectoryStore(tmp_path, "small-1")
    uri, _, _ = exported(make_order(), store)
    with pytest.raises(ConfigError, match=rf"spec.initialPolicy: .*{words}.*leave it out"):
        begin(make_order(initialPolicy={"uri": uri}, **changes), Alone(), CPU, store)


@pytest.mark.parametrize(
    ("given", "wanted", "words"),
    [
        ("discrete/2", "continuous/-1..1*2", "has choices as actions, the environment numbers"),
        ("continuous/-1..1*2", "discrete/2", "has numbers as actions, the environment choices"),
        # Three logits and a mean are as many outputs as two means and two deviations.
        ("continuous/-1..1*2", "hybrid/3/-1..1", r"shape \[16, 2\], this network's is \[16, 4\]"),
        ("hybrid/3/-1..1", "continuous/-1..1*4", "4"),
    ],
)
def test_outputs_of_the_same_shape_that_mean_other_actions_are_not_taken(make_order, tmp_path, given, wanted, words):
    store, own = DirectoryStore(tmp_path, "small-1"), {"hidden": [16]}

    def order(space: str, **changes) -> Order:
        data = {"spaces": f"uniform://{space}?observations=4", "learningAgentRef": {"name": "la"}}
        return make_order("iql-offline", hyperparameters=own, data=data, gates={"significant": False}, **changes)

    giver = begin(order(given), Alone(), CPU, store).learner
    bounds = giver.environment.bounds
    body = graph(giver.network.exported(), "iql-offline", {"learnloop.algorithm": "iql-offline"}, bounds, None)
    uri = store.put_artifact(body)
    with pytest.raises(ConfigError, match=rf"spec.initialPolicy: .*does not fit: .*{words}"):
        begin(order(wanted, initialPolicy={"uri": uri}), Alone(), CPU, store)
    again = begin(order(given, initialPolicy={"uri": uri}), Alone(), CPU, store)
    assert again.begun_from == uri


def test_a_policy_with_another_digest_or_none_at_all_is_refused(make_order: Orders, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, "small-1")
    uri, _, _ = exported(make_order(), store)
    wrong = {"uri": uri, "sha256": "0" * 64}
    with pytest.raises(ConfigError, match=r"spec.initialPolicy.sha256: '0+' is not the digest"):
        begin(make_order(initialPolicy=wrong), Alone(), CPU, store)
    text = store.put_artifact(b"no graph at all")
    with pytest.raises(ConfigError, match=r"spec.initialPolicy: .* (is not an ONNX file|was trained by)"):
        begin(make_order(initialPolicy={"uri": text}), Alone(), CPU, store)


def test_a_policy_that_does_not_fit_and_need_not_is_left_and_the_run_says_why(make_order, tmp_path):
    store = DirectoryStore(tmp_path, "small-1")
    uri, sha256, _ = exported(make_order("ppo", seed=5), store)
    served = {"initialPolicy": {"serving": True, "required": False}}
    other = make_order("dqn", **served).model_copy(update={"baseline_uri": uri, "baseline_sha256": sha256})
    cold, begun = begin(make_order("dqn"), Alone(), CPU, store), begin(other, Alone(), CPU, store)
    assert begun.learner.network.digest() == cold.learner.network.digest()
    assert begun.begun_from.startswith("random weights: spec.initialPolicy: ")
    fitting = make_order("ppo", **served).model_copy(update={"baseline_uri": uri, "baseline_sha256": sha256})
    assert begin(fitting, Alone(), CPU, store).begun_from == uri
    required = fitting.spec.model_copy(update={"initial_policy": InitialPolicy(uri=uri, sha256="0" * 64)})
    with pytest.raises(ConfigError):
        begin(fitting.model_copy(update={"spec": required}), Alone(), CPU, store)


def test_an_interrupted_run_remembers_what_it_began_with(make_order: Orders, tmp_path: Path) -> None:
    """Another policy may serve when it goes on."""
    store = DirectoryStore(tmp_path, "small-1")
    uri, sha256, _ = exported(make_order("ppo", seed=5), store)
    served = make_order("ppo", initialPolicy={"serving": True, "required": False})
    first = begin(served.model_copy(update={"baseline_uri": uri, "baseline_sha256": sha256}), Alone(), CPU, store)
    body = save(first, served, Alone())
    second = begin(served, Alone(), CPU, store)
    assert second.begun_from == "random weights: no learned policy serves yet"
    restore(second, served, Alone(), body)
    assert second.begun_from == uri


def test_a_policy_to_beat_that_cannot_play_ends_the_run_before_it_trains(make_order: Orders, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, "small-1")
    uri, sha256, _ = exported(make_order(), store)
    moved = make_order(data={"environment": "grids:KeyDoor"}, initialPolicy={"serving": True, "required": False})
    served = {"baseline_uri": uri, "baseline_sha256": sha256, "agent": "la"}
    with pytest.raises(ConfigError, match=r"baselineUri: .* takes 4 observations, the environment has 21; .*agent"):
        begin(moved.model_copy(update=served), Alone(), CPU, store)
