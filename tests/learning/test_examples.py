"""Every TrainingJob among the examples, trained by one rank: its result passes the gates it asks for."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from learnloop_trainer.order import Order, Place
from learnloop_trainer.run import run
from learnloop_trainer.store.directory import DirectoryStore

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = [
    pytest.param(item, id=file.parent.name)
    for file in sorted(EXAMPLES.rglob("*.yaml"))
    for item in yaml.safe_load_all(file.read_text())
    if item["kind"] == "TrainingJob"
]


@pytest.mark.parametrize("item", JOBS)
def test_the_jobs_result_passes_its_own_gates(
    item: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    order = Order.model_validate({"job": item["metadata"]["name"], "spec": item["spec"]})
    run(order, Place(), 1)
    manifest = DirectoryStore(tmp_path, order.job).manifest()
    assert manifest is not None
    gates = order.spec.gates
    assert gates.min_return is None or manifest.evaluation.mean >= gates.min_return
    assert not gates.significant or manifest.evaluation.ci_low > manifest.baseline.mean
