"""The rules of hardening guides for workloads, for every pod that the operator makes. SECURITY.md has the table."""

from collections.abc import Iterator

import pytest

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_dataplane.sandbox.job import manifest
from learnloop_dataplane.sandbox.limited_run import RunCase
from learnloop_operator.core.pod_templates import env_list
from learnloop_operator.training.backends import BACKENDS
from testing.manifests.made_by_operator import IMAGES, everything, templates
from testing.manifests.pod_hardening import flaws

MADE = everything()
LASTING = {"Deployment", "StatefulSet"}
ACCEPTED = {
    ("trainer", "no limit of memory"): "what a run needs is its own, and one that we guessed would kill it",
    ("actor", "no startupProbe"): "actors listen on no port: they end when they cannot play, and start again",
    ("actor", "no livenessProbe"): "the same",
    ("actor", "no readinessProbe"): "the same",
    ("model-server", "no startupProbe"): "it listens for its own pod alone; the gateway next to it answers for both",
    ("model-server", "no livenessProbe"): "the same",
    ("model-server", "no readinessProbe"): "the same",
}
"""Component or container, and finding → why it stays."""


def completed(item: dict) -> dict:
    """A TrainJob as its runtime completes it: it names the image and the resources next to the patch of the pod."""
    if item["kind"] != "TrainJob":
        return item
    trainer = item["spec"]["trainer"]
    own = {"image": trainer["image"], "resources": trainer.get("resourcesPerNode", {})}
    (template,) = templates(item)
    (container,) = template["spec"]["containers"]
    spec = {**template["spec"], "automountServiceAccountToken": False, "containers": [{**container, **own}]}
    return {**item, "spec": {"template": {**template, "spec": spec}}}


def missed() -> Iterator[tuple[str, str, str, str]]:
    """Case, component or container, finding, and the whole of it."""
    sandboxed = manifest("case", IMAGES["memory"], RunCase("print(1)", [], 5, 128))
    for case, items in {**MADE, "sandbox": (sandboxed,)}.items():
        for item in map(completed, items):
            for template in templates(item):
                component = template["metadata"]["labels"].get("app.kubernetes.io/component", "sandbox")
                for flaw in flaws(template, probed=item["kind"] in LASTING):
                    container, _, what = flaw.partition(": ")
                    inner = container in ("model-server", "pod")
                    yield case, container if inner else component, what, flaw


def test_no_pod_that_the_operator_makes_misses_an_item_without_a_written_reason() -> None:
    assert [gap for gap in missed() if (gap[1], gap[2]) not in ACCEPTED] == []


def test_meshes_leave_every_pod_alone_that_has_to_end() -> None:
    ending = [item for items in MADE.values() for item in items if item["kind"] not in LASTING]
    for metadata in (template["metadata"] for template in templates(ending)):
        assert metadata["annotations"].items() >= names.NO_SIDECAR.items()
        assert metadata["labels"].items() >= names.NO_SIDECAR_LABELS.items()


def test_a_value_of_ours_names_no_other_variable_and_a_users_own_may() -> None:
    own = {"name": "URL", "value": "https://$(KEY)"}
    made = env_list({"SPEC": "$(KEY) for $5"}, PodOptions.model_validate({"env": [own]}))
    assert made == [own, {"name": "SPEC", "value": "$$(KEY) for $$5"}]


def test_every_reason_is_still_needed() -> None:
    assert set(ACCEPTED) <= {(component, what) for _, component, what, _ in missed()}


@pytest.mark.parametrize("backend", [backend.name for backend in BACKENDS])
def test_every_training_backend_was_looked_at(backend: str) -> None:
    assert list(templates(MADE[f"training/{backend}/numbers"])), backend


def test_every_component_that_the_operator_makes_was_looked_at() -> None:
    components = {
        template["metadata"]["labels"]["app.kubernetes.io/component"]
        for items in MADE.values()
        for template in templates(list(items))
    }
    assert components == {"trainer", "actor", "policy-server", "memory-service", "memory-postgres", "gate-suite"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"securityContext": {}}, "policy-server: runAsNonRoot is not set"),
        ({"hostNetwork": True}, "pod: hostNetwork"),
        ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, "pod: volume hostPath"),
        ({"automountServiceAccountToken": True, "serviceAccountName": ""}, "pod: a token of the account that"),
        ({"image": "x"}, "policy-server: image x: no version"),
        ({"image": "host:5000/x:latest"}, "policy-server: image host:5000/x:latest: no version"),
        ({"image": "x@sha256:abc"}, "policy-server: image x@sha256:abc: no digest"),
        ({"resources": {"requests": {"cpu": "1"}}}, "policy-server: no limit of memory"),
        ({"ports": [{"containerPort": 1, "hostPort": 1}]}, "policy-server: a port of the node"),
        ({"livenessProbe": None}, "policy-server: no livenessProbe"),
    ],
)
def test_the_check_sees_what_is_wrong(change: dict, sentence: str) -> None:
    (good,) = templates(list(MADE["deployment/numbers"]))
    assert list(flaws(good, probed=True)) == []
    inside = {"image", "resources", "ports", "livenessProbe"}
    (container,) = good["spec"]["containers"]
    changed = {**container, **{key: value for key, value in change.items() if key in inside}}
    if changed["livenessProbe"] is None:
        del changed["livenessProbe"]
    spec = {**good["spec"], **{key: value for key, value in change.items() if key not in inside}}
    assert any(one.startswith(sentence) for one in flaws({"spec": {**spec, "containers": [changed]}}, probed=True))
