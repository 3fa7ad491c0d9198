"""Samplers stand beside a gang that works, on every backend; they are no part of it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest, Plan
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.kube.kinds import JOB
from learnloop_operator.training.backends import BACKENDS, Backends
from learnloop_operator.training.ranks import RankDefaults
from learnloop_operator.training.run_snapshot import BackendJob, RunRequest, TrainingSnapshot
from learnloop_operator.training.sampler_pods import deployment
from testing.training.training_builders import DEFAULTS, NOW, heartbeat, job, plan, rank, resource, run, spec, world

POD = {
    "resources": {"limits": {"nvidia.com/gpu": 1}},
    "nodeSelector": {"node": "spot"},
    "resourceClaims": [{"name": "gpu"}],
}


def sampled(**changes: Any) -> TrainingJobSpec:
    return spec(workers=0, samplers={"count": 3, "environments": 2}, **changes)


def working(phase: str = "training", status: dict[str, Any] | None = None, **changes: Any) -> TrainingSnapshot:
    chosen: dict[str, Any] = {
        "spec": sampled(),
        "job": job(workers=0),
        "ranks": (rank(0),),
        "run": run(beat=heartbeat(phase=phase, world_size=1)),
        "has_samplers": True,
    }
    return world({"attempts": 1, "startedAt": "2026-03-01T11:00:00Z", **(status or {})}, **chosen | changes)


def made(found: Plan, kind: str, name: str = "t-samplers") -> Manifest | None:
    return next((item for item in found.apply if (item["kind"], item["metadata"]["name"]) == (kind, name)), None)


def deleted(found: Plan) -> bool:
    return any((ref.kind, ref.name) == ("Deployment", "t-samplers") for ref in found.delete)


def request(**changes: Any) -> RunRequest:
    return asked(sampled(**changes), attempt=2, agent="la", fresh_key="secret")


def asked(wanted: TrainingJobSpec, **changes: Any) -> RunRequest:
    chosen = {"attempt": 0, "agent": None, "baseline_uri": None, "baseline_sha256": None, **changes}
    return RunRequest(job=resource(), spec=wanted, **chosen)


def test_a_gang_that_works_has_its_samplers_and_one_that_does_not_has_none() -> None:
    for phase in ("starting", "training"):
        there = made(plan(working(phase)), "Deployment")
        assert there is not None
        assert there["spec"]["replicas"] == 3
    for phase in ("evaluating", "exporting", "done"):
        assert made(plan(working(phase)), "Deployment") is None
        assert deleted(plan(working(phase)))


@pytest.mark.parametrize(
    "changes",
    [
        {"job": job(workers=0, queued=True)},
        {"spec": sampled(suspend=True)},
        {"job": job(workers=0, state="failed")},
        {"job": None, "ranks": ()},
        {"status": {"finishedAt": "2026-03-01T11:59:00Z"}},
    ],
)
def test_samplers_go_when_the_gang_waits_ends_or_is_gone(changes: dict[str, Any]) -> None:
    found = plan(working(**changes))
    assert deleted(found)
    assert made(found, "Deployment") is None


def test_where_no_samplers_stand_nothing_is_deleted() -> None:
    assert not deleted(plan(working("evaluating", has_samplers=False)))
    assert not deleted(plan(working("evaluating", spec=spec(workers=0))))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_first_attempt_makes_key_service_and_ways_before_the_gang_on_every_backend(backend: Any) -> None:
    network = Backends(defaults=_with_network())
    manifests = network.render(backend, request(backend=backend.name))
    kinds = [(item["kind"], item["metadata"]["name"]) for item in manifests]
    assert kinds[-1] == (backend.kind, "t")
    assert kinds[:-1] == [
        ("NetworkPolicy", "t-ranks"),
        ("Secret", "t-samplers"),
        ("Service", "t-learner"),
        ("NetworkPolicy", "t-samplers"),
    ]
    text = json.dumps(manifests[-1])
    assert "samplers.learnloop.dev" in text
    assert "secret" not in json.loads(text).get("stringData", {})


def _with_network() -> RankDefaults:
    return replace(DEFAULTS, network=WorkloadNetwork())


def test_only_samplers_and_ranks_reach_the_learner_and_nobody_reaches_samplers() -> None:
    ranks, _, service, samplers = Backends(defaults=_with_network()).render(BACKENDS[-1], request(backend="job"))[:4]
    way = {"from": [{"podSelector": {"matchLabels": SAMPLER_PODS}}], "ports": [{"port": 23460, "protocol": "TCP"}]}
    assert way in ranks["spec"]["ingress"]
    assert samplers["spec"]["ingress"] == []
    assert samplers["spec"]["podSelector"]["matchLabels"] == SAMPLER_PODS
    assert service["spec"]["selector"] == ranks["spec"]["podSelector"]["matchLabels"]


SAMPLER_PODS = {names.LABEL_SAMPLED_JOB: "t", names.LABEL_COMPONENT: "sampler"}


def test_a_sampler_has_no_token_no_device_and_no_label_of_a_rank() -> None:
    manifest = deployment(request(pod=POD), DEFAULTS)
    template = manifest["spec"]["template"]
    assert names.LABEL_TRAINING_JOB not in template["metadata"]["labels"]
    assert "serviceAccountToken" not in json.dumps(template)
    assert "nvidia.com/gpu" not in json.dumps(template)
    assert "resourceClaims" not in template["spec"]
    assert template["spec"]["nodeSelector"] == {"node": "spot"}
    environ = {item["name"]: item.get("value") for item in template["spec"]["containers"][0]["env"]}
    assert environ[names.ENV_LEARNER] == "t-learner.ns.svc:23460"
    assert environ[names.ENV_SAMPLERS_KEY_FILE] == "/var/run/secrets/samplers.learnloop.dev/key"
    assert "secret" not in [environ[name] for name in environ]


def test_another_number_or_attempt_changes_no_pod() -> None:
    first = deployment(request(), DEFAULTS)
    other = spec(workers=0, samplers={"count": 9, "environments": 2})
    second = deployment(asked(other, attempt=5), DEFAULTS)
    assert second["spec"]["replicas"] == 9
    assert first["spec"]["template"] == second["spec"]["template"]


def test_a_job_without_samplers_is_made_as_ever() -> None:
    manifests = Backends(defaults=_with_network()).render(BACKENDS[-1], asked(spec(workers=0)))
    assert [item["kind"] for item in manifests] == ["NetworkPolicy", JOB.kind]
    assert "samplers" not in json.dumps(manifests)


def test_a_job_of_an_old_attempt_that_is_taken_down_takes_its_samplers_with_it() -> None:
    gone = BackendJob(ref=JOB.ref("ns", "t"), attempt=0, created=NOW, workers=0, deleting=True)
    assert deleted(plan(working(job=gone)))


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"limits": {"nvidia.com/gpu": 1}}, r"nvidia\.com/gpu: samplers play on processors.*pod\.resources"),
        ({"requests": {"cpu": 1, "example.com/fpga": 1}}, r"example\.com/fpga: samplers play on processors"),
        ({"claims": [{"name": "gpu"}]}, "remove claims"),
    ],
)
def test_samplers_have_no_devices_for_quotas_count_those_of_ranks(resources: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(workers=0, samplers={"count": 200, "resources": resources})
    wide = {"requests": {"cpu": "500m", "ephemeral-storage": "1Gi"}, "limits": {"memory": "1Gi", "hugepages-2Mi": 0}}
    assert spec(workers=0, samplers={"count": 200, "resources": wide}).samplers is not None
