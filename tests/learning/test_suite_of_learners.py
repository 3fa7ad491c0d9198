"""The evaluation suite of learners without an own student: from recordings, and of families of tasks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from learnloop_api.wire.training import Proof
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run
from testing.training.recordings import recorded

SUITE = {"episodes": 8, "adaptationSteps": 256}
FAMILY = [{"parameter": name, "low": -0.5, "high": 0.5} for name in ("goal_x", "goal_y")]


def proven(order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proof:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    assert proof is not None
    return proof


@pytest.mark.parametrize("algorithm", ["bc", "iql-offline"])
@pytest.mark.parametrize("name", ["CartPole-v1", "motion:PointGoals"])
def test_what_learned_from_a_recording_is_fine_tuned_by_ppo(make_order, tmp_path, monkeypatch, algorithm, name):
    recorded(name, tmp_path / "log.jsonl")
    block = {"recording": (tmp_path / "log.jsonl").as_uri(), "hidden": [16], "batchSize": 32}
    changes = {"hyperparameters": block, "data": {"environment": name}}
    order = make_order(algorithm, steps=20_000, evaluation={"episodes": 8, "suite": SUITE}, **changes)
    suite = proven(order, tmp_path, monkeypatch).suite
    assert suite is not None
    results = {one.dimension: one for one in suite.results}
    assert [dimension for dimension, one in results.items() if one.iqm is None] == ["coordination"]
    assert len(results["sample-efficiency"].conditions) == 5
    assert results["adaptability"].conditions[0].endswith(", 256 steps of ppo")


def test_meta_learned_weights_are_adapted_before_they_are_judged_and_adapt_to_what_has_changed(
    make_order: Callable[..., Order], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maml = {"environments": 20, "episodes": 10, "hidden": [16]}
    data = {"environment": "motion:PointGoals", "randomise": FAMILY}
    order = make_order("maml", steps=4000, hyperparameters=maml, data=data, evaluation={"episodes": 8, "suite": SUITE})
    proof = proven(order, tmp_path, monkeypatch)
    assert proof.suite is not None
    results = {one.dimension: one for one in proof.suite.results}
    assert [dimension for dimension, one in results.items() if one.iqm is None] == ["coordination"]
    assert results["adaptability"].conditions == ["goal_x 0.6, 1 inner step on 10 episodes"]
    curve = results["sample-efficiency"]
    assert curve.conditions[-1] == "step 4000"
    assert curve.reference.value == pytest.approx(proof.evaluation.iqm)
