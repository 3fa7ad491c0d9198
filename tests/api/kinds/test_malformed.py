"""Bad objects never get in: the API server itself refuses them, and says which field and what to do."""

import json
from functools import partial
from pathlib import Path

import pytest

from learnloop_api.kinds.training.algorithms import ALGORITHMS
from testing.malformed_objects import CASES, GOOD, changed, malformed


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_object_is_accepted(kind: str, kube) -> None:
    kube.create(changed(kind), dry=True)


@pytest.mark.parametrize("case", CASES, ids=[case["wrong"] for case in CASES])
def test_a_malformed_object_is_refused_with_field_and_fix(case: dict, kube) -> None:
    message = kube.refusal(lambda: kube.create(malformed(case), dry=True))
    assert case["field"] in message
    assert case["fix"] in message
    assert "no such key" not in message, "a rule failed to evaluate"


def test_each_hyperparameter_that_an_algorithm_does_not_take_is_refused_by_name(kube) -> None:
    dqn, values = ALGORITHMS["dqn"], {}
    for other in ALGORITHMS.values():
        values |= {name: value for name, value in other.model().to_kube().items() if name not in dqn.fields}
    assert len(values) > 40
    for name, value in values.items():
        job = changed("TrainingJob", {"spec.hyperparameters": {name: value}})
        message = kube.refusal(partial(kube.create, job, dry=True))
        assert name in message
        assert "remove it, or change algorithm" in message


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_defaults_of_an_algorithm_written_out_are_accepted(algorithm: str, kube) -> None:
    one = ALGORITHMS[algorithm]
    given = {"spec.algorithm": algorithm, "spec.hyperparameters": one.model().to_kube(), "spec.workers": 0}
    if one.language:
        given["spec.data.languageModel"] = {"base": {"uri": "file:///models/tiny", "sha256": "0" * 64}}
    if one.name == "custom":
        given["spec.pod"] = {"image": "registry.example/own:1", "command": ["own"]}
    kube.create(changed("TrainingJob", given), dry=True)


def test_a_list_longer_than_its_bound_is_refused_with_the_bound(kube) -> None:
    steps = [{"weight": weight} for weight in range(80, 101)]
    manifest = changed("ModelDeployment", {"spec.rollout.steps": steps})
    message = kube.refusal(lambda: kube.create(manifest, dry=True))
    assert "spec.rollout.steps: Too many: 21: must have at most 20 items" in message


def test_a_megabyte_in_one_field_is_refused_with_the_bound(kube) -> None:
    manifest = changed("LearningAgent", {"spec.task.environment.name": "x" * 2**20})
    message = kube.refusal(lambda: kube.create(manifest, dry=True))
    assert "spec.task.environment.name: Too long: may not be more than 253" in message


def test_ten_megabytes_of_spec_are_refused_with_the_limit(kubectl, tmp_path: Path) -> None:
    # Through kubectl: the API server hangs up in mid-upload, and only Go's client reads the answer all the same.
    env = [{"name": f"V{index}", "value": "x" * 32_000} for index in range(330)]
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(changed("TrainingJob", {"spec.pod.env": env})))
    assert "limit is 3145728" in kubectl("create", "-f", str(path), fails=True)
