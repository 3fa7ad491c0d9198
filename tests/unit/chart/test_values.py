"""Values: what is refused, and that what is allowed is documented."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from learnloop_dataplane.notifications.webhook_outbox import Webhook
from learnloop_operator.training.backends import ENDS, JOB_DISRUPTED as JOB_DISRUPTED, NODE

from .conftest import CHART, ROOT, Rejected, Render

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

REFUSED = [
    ("operator.replica", 2, "'replica' not allowed"),
    ("decisions.signatures", {"bot": ""}, "/decisions/signatures"),
    ("decisions.verifyNames", True, "/decisions/verifyNames"),
    ("operator.replicas", -1, "/operator/replicas"),
    ("operator.image.tag", 1.0, "/operator/image/tag"),
    ("operator.image.digest", "sha256:short", "/operator/image/digest"),
    ("operator.logLevel", "chatty", "/operator/logLevel"),
    ("watchNamespaces", ["Not_A_Name"], "/watchNamespaces/0"),
    ("watchNamespaces", ["a", "a"], "/watchNamespaces"),
    ("dataPlane.auth.mode", "trust-me", "/dataPlane/auth/mode"),
    ("dataPlane.consolidateEverySeconds", 5, "/dataPlane/consolidateEverySeconds"),
    ("dataPlane.retentionDays", 0, "/dataPlane/retentionDays"),
    ("dataPlane.artifacts.persistence.size", "5 gigabytes", "/dataPlane/artifacts/persistence/size"),
    ("dataPlane.replicas", 2, "dataPlane.replicas: 2 replicas cannot share a ReadWriteOnce volume"),
    ("postgresql.embedded", False, "/postgresql/external/dsnSecret/name"),
    ("nats.embedded", False, "/nats/external/url"),
    ("nats.external.url", "http://nats", "/nats/external/url"),
    ("nats.trajectories.size", "32Mi", "/nats/trajectories/size"),
    ("nats.trajectories.size", "512M", "/nats/trajectories/size"),
    ("nats.trajectories.size", "2Gi", "do not fit into three quarters of nats.persistence.size (2Gi)"),
    ("prometheus.embedded", False, "/prometheus/external/url"),
    ("prometheus.scrapeInterval", "2 seconds", "/prometheus/scrapeInterval"),
    ("global.imagePullPolicy", "Sometimes", "/global/imagePullPolicy"),
    ("networkPolicy.dataPlaneFrom", {"namespaceSelector": {}}, "/networkPolicy/dataPlaneFrom"),
    ("nameOverride", "{{ .Values }}", "/nameOverride"),
    ("backup.persistence.storageClassName", "# x", "/backup/persistence/storageClassName"),
    ("nothing", True, "'nothing' not allowed"),
]


def nested(path: str, value) -> dict:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


@pytest.mark.parametrize(("path", "value", "sentence"), REFUSED, ids=[f"{path}={value}" for path, value, _ in REFUSED])
def test_a_wrong_value_is_refused_and_named(render: Render, path: str, value, sentence: str) -> None:
    with pytest.raises(Rejected) as caught:
        render(nested(path, value))
    assert sentence in str(caught.value)


def test_names_that_yaml_reads_as_numbers_or_truths_stay_texts(render: Render) -> None:
    warehouse = {"urlSecret": {"name": "65", "key": "1"}}
    named = {"nameOverride": "yes", "tls": {"namespaces": ["27"]}, "dataPlane": {"warehouse": warehouse}}
    release = render(named, "--namespace", "456", name="123")
    for metadata in (item["metadata"] for item in release.objects):
        labels = metadata["labels"].values()
        assert {type(one) for one in (metadata["name"], metadata.get("namespace", ""), *labels)} == {str}, metadata
    assert str({"name": "65", "key": "1"}) in str(release.objects)


def test_helm_lint_finds_nothing(helm: str) -> None:
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True, capture_output=True, timeout=240)


@pytest.mark.parametrize(
    "file", [CHART / "values.yaml", ROOT / "hack" / "cluster" / "values.yaml"], ids=["own", "local"]
)
def test_the_values_files_fit_the_schema(file: Path) -> None:
    Draft7Validator.check_schema(SCHEMA)
    Draft7Validator(SCHEMA).validate(yaml.safe_load(file.read_text()))


def _objects(schema: dict, path: str) -> Iterator[tuple[str, dict]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _objects(child, f"{path}.{name}")
    for name, child in schema.get("definitions", {}).items():
        yield from _objects(child, f"{path}#{name}")


def test_every_value_is_described_and_no_object_takes_unknown_keys() -> None:
    for path, schema in _objects(SCHEMA, ""):
        if path:
            assert schema.get("description"), path
        if "properties" in schema and path != ".global":
            assert schema.get("additionalProperties") is False, path


def test_every_value_of_the_schema_has_a_default_in_values_yaml() -> None:
    def missing(schema: dict, values, path: str) -> Iterator[str]:
        if "allOf" in schema:
            schema = SCHEMA["definitions"][schema["allOf"][0]["$ref"].rsplit("/", 1)[1]]
        for name, child in schema.get("properties", {}).items():
            if name not in values:
                yield f"{path}.{name}"
            elif isinstance(values[name], dict):
                yield from missing(child, values[name], f"{path}.{name}")

    assert list(missing(SCHEMA, VALUES, "")) == []


def test_the_runtime_of_train_jobs_is_made_when_it_is_asked_for_and_the_operator_knows_its_name(render: Render) -> None:
    assert not render().of("ClusterTrainingRuntime")
    assert "LEARNLOOP_TRAINING_RUNTIME" not in render().environment("learnloop-operator")
    release = render({"trainer": {"runtime": {"create": True}}})
    (runtime,) = release.of("ClusterTrainingRuntime")
    name = release.environment("learnloop-operator")["LEARNLOOP_TRAINING_RUNTIME"]
    assert runtime["metadata"]["name"] == name == "learnloop-system-learnloop"
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == NODE
    inner = job["template"]["spec"]
    assert (inner["backoffLimit"], inner["podFailurePolicy"]) == (ENDS["backoffLimit"], ENDS["podFailurePolicy"])
    policy = runtime["spec"]["template"]["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 0, "the operator restarts whole gangs itself"
    [rule] = policy["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", [JOB_DISRUPTED])
    pod = inner["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)


def test_the_webhook_reaches_the_data_plane_which_alone_mounts_its_key(render: Render) -> None:
    assert "LEARNLOOP_NOTIFICATIONS" not in render().environment("learnloop-data")
    setting = {"url": "https://hooks.example.org", "keySecret": {"name": "learnloop-hook"}, "escalateAfter": "30m"}
    release = render({"dataPlane": {"notifications": setting}})
    webhook = Webhook.parse(release.environment("learnloop-data")["LEARNLOOP_NOTIFICATIONS"])
    assert (webhook.url, webhook.escalation) == ("https://hooks.example.org", 1800.0)
    mounting = [
        item["metadata"]["name"]
        for item in release.of("Deployment")
        for volume in item["spec"]["template"]["spec"].get("volumes") or ()
        if (volume.get("secret") or {}).get("secretName") == "learnloop-hook"
    ]
    assert mounting == ["learnloop-data"]
