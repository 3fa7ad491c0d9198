"""Every pod that the operator makes is restricted: one function makes them all, and no option of a user undoes it."""

import ast
from pathlib import Path

import pytest

import learnloop_operator
from learnloop_api.kinds.base import PodOptions
from learnloop_operator.core.pod_templates import Main, pod_template

SOURCES = Path(learnloop_operator.__file__).parent
THE_ONE = "core/pod_templates.py"
COPIES = "training/backends.py"
"""A patch of Trainer's runtime says again what pod_template wrote; test_every_backend reads it."""
USERS = {
    "nothing": {},
    "everything": {
        "image": "registry.example.com/own:1",
        "env": [{"name": "A", "value": "b"}],
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "serviceAccountName": "own",
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "volumes": [{"name": "own", "emptyDir": {}}],
        "volumeMounts": [{"name": "own", "mountPath": "/own"}],
        "resources": {"limits": {"memory": "1Gi"}},
    },
}


def test_containers_are_written_in_one_place_only() -> None:
    written = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Dict)
        and any(isinstance(key, ast.Constant) and key.value in ("containers", "initContainers") for key in node.keys)
    }
    assert written == {THE_ONE, COPIES}, "make pods by pod_template, so that they are restricted"


def test_nothing_writes_a_security_context_but_the_same_place() -> None:
    assert {
        str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if '"securityContext"' in path.read_text()
    } == {THE_ONE, COPIES}


@pytest.mark.parametrize("option", USERS)
@pytest.mark.parametrize("access", [{}, {"token": False}, {"api_access": True}, {"user_id": 999}])
def test_no_option_of_a_user_undoes_the_restricted_standard(option: str, access: dict) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, and a read-only root."""
    main = Main(name="main", image="image:1", pull_policy="IfNotPresent")
    options = PodOptions.model_validate(USERS[option])
    spec = pod_template(main, options, labels={"x": "y"}, **access)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["enableServiceLinks"] is False
    assert spec["automountServiceAccountToken"] is access.get("api_access", False)
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"} & set(spec)
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all("hostPort" not in port for port in container.get("ports", []))


def test_a_user_has_no_field_that_could() -> None:
    fields = set(PodOptions.model_json_schema(by_alias=True)["properties"])
    assert not {"securityContext", "hostNetwork", "hostPID", "hostIPC", "containers", "initContainers"} & fields
