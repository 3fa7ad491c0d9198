"""The proof of a whole run of one rank."""

import json

from learnloop_api.wire.training import Proof


def test_a_run_with_validation_episodes_reports_them_beside_the_proof(launch, small, tmp_path):
    code, output = launch(small(steps=512, evaluation={"episodes": 8, "validationEpisodes": 16})).ended()
    assert code == 0, output
    proof = Proof.model_validate_json((tmp_path / "store/runs/small-1/proof.json").read_text())
    assert (proof.evaluation.episodes, proof.validation.episodes) == (8, 16)
    assert proof.validation.mean != proof.evaluation.mean


def test_a_run_that_asks_for_the_suite_has_it_in_its_proof(launch, small, tmp_path):
    suite = {"episodes": 8, "adaptationSteps": 256}
    code, output = launch(small(steps=6400, evaluation={"episodes": 8, "suite": suite})).ended()
    assert code == 0, output
    proof = Proof.model_validate_json((tmp_path / "store/runs/small-1/proof.json").read_text())
    results = {one.dimension: one for one in proof.suite.results}
    assert [name for name, one in results.items() if one.iqm is None] == ["coordination"]
    curve = results["sample-efficiency"]
    assert (len(curve.conditions), curve.episodes, curve.conditions[-1]) == (5, 40, "step 6400")
    assert results["adaptability"].compared == "before fine-tuning"
    assert json.loads(proof.model_dump_json())["suite"]["overall"] > 0
