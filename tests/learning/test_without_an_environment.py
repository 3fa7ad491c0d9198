"""An agent without a simulator: trained, proven and exported from its own logged experience alone."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from learnloop_api.wire.training import Proof
from learnloop_common.acting import onnx_policy
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run
from testing.training.recordings import bandit

SPACES = "uniform://discrete/3?observations=3"


def trained(store: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch, **changes) -> tuple[Proof, bytes]:
    """The proof and the ONNX file of a run whose order names no environment."""
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{store}")
    spec = {
        "algorithm": algorithm,
        "totalSteps": 60_000,
        "data": {"spaces": SPACES, "learningAgentRef": {"name": "la"}},
        "export": {"behaviour": {"kind": "sampled", "temperature": 0.1}} if algorithm == "cql" else {},
        **changes,
    }
    order = Order.model_validate({"job": "alone-1", "spec": spec})
    run(order, Place(), 1)
    saved = DirectoryStore(store, order.job)
    proof = saved.proof()
    return proof, Path(urlsplit(proof.artifact_uri).path).read_bytes()


@pytest.mark.parametrize("algorithm", ["cql", "iql-offline", "bc"])
def test_a_run_without_an_environment_is_proven_by_its_log_and_acts_where_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    store = tmp_path / "store"
    real = bandit(store / "trajectories" / "la.jsonl", episodes=800, steps=4, right=0.7)
    proof, body = trained(store, algorithm, monkeypatch)
    assert (proof.environment, proof.held_out, proof.baseline_uri) == (SPACES, None, None)
    assert proof.experience is not None
    assert proof.off_policy is not None
    judged = proof.off_policy
    assert judged.verdict, judged.message
    assert 180 < judged.episodes < 300, "30 % of those logged"
    assert proof.experience.steps == 4 * (800 - judged.episodes), "and what proves is not learned from"
    served = onnx_policy.OnnxPolicy(body, 1)
    assert (served.observations, served.actions) == (3, 3)
    worth = real(Behaving(OnnxPolicy(body, 3, 3), 0), judged.discount)
    assert proof.evaluation.ci_low <= worth <= proof.evaluation.ci_high
    assert proof.difference is not None
    if algorithm != "bc":
        assert worth > 1.2 * proof.baseline.mean
        assert proof.difference.low > 0
