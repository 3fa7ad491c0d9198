"""The user's own program trains in a container that cannot reach what proves it."""

import json
from datetime import timedelta

import pytest

from learnloop_operator.core.plan import KubeObject
from learnloop_operator.core.times import stamp
from learnloop_operator.training.backends import CONTAINERS, PYTORCH_JOB
from learnloop_operator.training.gang_pods import rank_of
from learnloop_operator.training.ranks import ENV_SPEC
from learnloop_operator.training.run_snapshot import RunRequest
from testing.training.training_builders import (
    ALL,
    DEFAULTS,
    NOW,
    condition,
    heartbeat,
    job,
    plan,
    reason,
    resource,
    run,
    situation,
    spec,
)

OWN = {"image": "registry.example/own:1", "command": ["python", "/train.py"], "env": [{"name": "A", "value": "1"}]}
OWN |= {"resources": {"limits": {"nvidia.com/gpu": 8}}, "volumes": [{"name": "code", "emptyDir": {}}]}
OWN |= {"volumeMounts": [{"name": "code", "mountPath": "/app"}], "imagePullPolicy": "Never"}


def rank() -> dict:
    wanted = spec(algorithm="custom", pod=OWN)
    request = RunRequest(job=resource(), spec=wanted, attempt=0, agent=None, baseline_uri=None, baseline_sha256=None)
    manifest: KubeObject = PYTORCH_JOB.render(request, DEFAULTS)
    return dict(manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"])


def test_the_engine_has_the_image_and_the_gpus_and_the_trainer_is_the_operators_own() -> None:
    trainer, engine = rank()["containers"]
    assert (trainer["name"], trainer["image"]) == ("pytorch", DEFAULTS.image)
    assert (engine["name"], engine["image"]) == ("engine", "registry.example/own:1")
    assert engine["command"][-2:] == ["python", "/train.py"]
    assert engine["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert trainer["resources"]["limits"].keys() == {"cpu", "memory"}
    (order,) = (json.loads(item["value"]) for item in trainer["env"] if item["name"] == ENV_SPEC)
    assert order["spec"]["pod"] == {"image": "registry.example/own:1", "command": ["python", "/train.py"]}


def test_an_engine_shares_one_folder_with_the_trainer_and_has_no_token() -> None:
    pod = rank()
    trainer, engine = ({item["name"] for item in one["volumeMounts"]} for one in pod["containers"])
    assert trainer & engine == {"learnloop-engine"}
    assert "learnloop-token" in trainer - engine
    shared = [one["emptyDir"] for one in pod["volumes"] if one["name"].startswith("learnloop-engine")]
    assert [one["sizeLimit"] for one in shared] == ["32Gi", "32Gi"]
    assert pod["automountServiceAccountToken"] is False
    assert {item["name"] for item in pod["containers"][1]["env"]} == {"A", "HOME", "LEARNLOOP_ENGINE_DIRECTORY"}
    assert "A" not in {item["name"] for item in pod["containers"][0]["env"]}
    assert [one["imagePullPolicy"] for one in pod["containers"]] == [DEFAULTS.pull_policy, "Never"]


def test_an_engine_mounts_no_volume_of_learnloops() -> None:
    mount = [{"name": "learnloop-token", "mountPath": "/t"}]
    refused = plan(situation(spec=spec(algorithm="custom", pod=OWN | {"volumeMounts": mount})))
    assert (reason(refused), refused.apply) == ("PodNotAllowed", ())
    assert plan(situation(spec=spec(algorithm="custom", pod=OWN))).apply


@pytest.mark.parametrize(
    ("state", "ends", "sentence"),
    [
        ({"waiting": {"reason": "ImagePullBackOff", "message": "none"}}, False, "the engine of pod t-0 waits"),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, True, "t-0: its engine exited with 137 (OOM"),
    ],
)
def test_an_engine_that_cannot_run_is_named_though_its_trainer_runs(state, ends: bool, sentence: str) -> None:
    for end in state.values():
        end["finishedAt"] = stamp(NOW - timedelta(seconds=61))
    both = [{"name": "pytorch", "state": {"running": {"startedAt": stamp(NOW)}}}, {"name": "engine", "state": state}]
    metadata = {"name": "t-0", "creationTimestamp": stamp(NOW)}
    rank_ = rank_of({"metadata": metadata, "status": {"containerStatuses": both}}, CONTAINERS, NOW)
    assert rank_ is not None
    made = plan(situation({"attempts": 1}, job=job(), ranks=(rank_,), run=run(beat=heartbeat())))
    assert sentence in condition(made, "Ready")["message"]
    assert (reason(made) != "PodsHeldUp") == ends


def test_a_train_job_carries_no_engine_and_the_status_says_which_engine_trains() -> None:
    alone = situation(spec=spec(algorithm="custom", pod=OWN), installed=frozenset({"trainjob"}))
    assert reason(plan(alone)) == "BackendMissing"
    assert "no second container" in ALL.none_fits(alone)
    assert plan(situation(spec=spec(algorithm="custom", pod=OWN))).status["engine"] == "image: own does not have custom"
    assert plan(situation(spec=spec(engine="sb3", workers=0))).status["engine"] == "sb3: spec.engine names it"
