"""A TrainingJob of a language model: its ranks find the base model, and their order says all of it."""

import json

import pytest

from learnloop_api import names
from learnloop_api.kinds.training.algorithms import LANGUAGE
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.training.ranks import ENV_SPEC, RankDefaults, rank_template
from learnloop_operator.training.run_snapshot import RunRequest
from testing.language.spoken import DIGEST, SPOKEN

DEFAULTS = RankDefaults(image="trainer:1", pull_policy="IfNotPresent", data_url="http://data")


def pod(algorithm: str, uri: str) -> dict:
    spoken = {**SPOKEN, "base": {"uri": uri, "sha256": DIGEST}}
    spec = TrainingJobSpec.model_validate(
        {"algorithm": algorithm, "totalSteps": 64, "data": {"environment": "ToolLookup-v1", "languageModel": spoken}}
    )
    job = {"metadata": {"name": "la-1", "namespace": "ns", "uid": "u"}}
    request = RunRequest(
        job=job, spec=spec, attempt=0, agent="la", baseline_uri=f"base://{DIGEST}", baseline_sha256=DIGEST
    )
    return dict(rank_template(request, DEFAULTS, "pytorch")["spec"])


@pytest.mark.parametrize("algorithm", LANGUAGE)
def test_the_order_says_the_whole_language_model(algorithm: str) -> None:
    (main,) = pod(algorithm, "file:///models/tiny")["containers"]
    order = json.loads(next(item["value"] for item in main["env"] if item["name"] == ENV_SPEC))
    assert order["spec"]["algorithm"] == algorithm
    assert order["spec"]["data"]["languageModel"] == {
        **SPOKEN,
        "base": {"uri": "file:///models/tiny", "sha256": DIGEST},
    }
    assert order["baselineUri"] == f"base://{DIGEST}"


@pytest.mark.parametrize(
    ("uri", "source", "folder"),
    [
        ("pvc://models/a/tiny", {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}, "a/tiny"),
        ("pvc://models", {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}, None),
        (
            f"oci://registry.example/tiny@sha256:{DIGEST}",
            {"image": {"reference": f"registry.example/tiny@sha256:{DIGEST}", "pullPolicy": "IfNotPresent"}},
            None,
        ),
    ],
)
def test_a_claim_and_an_image_are_volumes_that_nobody_writes_to(uri, source, folder):
    made = pod("rloo", uri)
    (volume,) = [item for item in made["volumes"] if item["name"] == "learnloop-base-model"]
    assert volume == {"name": "learnloop-base-model", **source}
    (mount,) = [item for item in made["containers"][0]["volumeMounts"] if item["name"] == volume["name"]]
    assert (mount["mountPath"], mount["readOnly"]) == (names.BASE_MODEL_DIRECTORY, True)
    assert mount.get("subPath") == folder


@pytest.mark.parametrize("uri", ["file:///models/tiny", "s3://models/tiny"])
def test_a_folder_that_the_rank_finds_itself_is_no_volume(uri: str) -> None:
    assert "learnloop-base-model" not in json.dumps(pod("rloo", uri))
