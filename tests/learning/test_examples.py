"""Every TrainingJob among the examples, trained by one rank: its result passes the gates it asks for.

The one that searches (study) is trained by its trials (test_study.py), those of engine image by a user's program.
"""

from pathlib import Path

import pytest
import yaml

from learnloop_operator.training import proof_gates
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = [
    pytest.param(item, id=file.parent.name)
    for file in sorted(EXAMPLES.rglob("*.yaml"))
    for item in yaml.safe_load_all(file.read_text())
    if item["kind"] == "TrainingJob" and "study" not in item["spec"] and item["spec"].get("engine") != "image"
]


@pytest.mark.parametrize("item", JOBS)
def test_the_jobs_result_passes_its_own_gates(item, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    order = Order.model_validate({"job": item["metadata"]["name"], "spec": item["spec"]})
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path, order.job).proof()
    assert proof is not None
    results = proof_gates.evaluate(order.spec.gates, proof)
    assert results
    assert all(result.passed for result in results), [result.message for result in results]
