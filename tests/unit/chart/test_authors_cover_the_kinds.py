"""Every field by which an author has pods made, or has a Secret read, is one that the policy asks about."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.memory_service import MemoryServiceSpec, ModelVolume, SecretKeyRef
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.training_job import TrainingJobSpec

from .conftest import Render

SPECS = (LearningAgentSpec, MemoryServiceSpec, ModelDeploymentSpec, TrainingJobSpec)


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models anywhere in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def paths(model: type[BaseModel], wanted: type[BaseModel], at: str = "spec") -> Iterator[str]:
    """Where fields of type `wanted` are."""
    for name, field in model.model_fields.items():
        for found in models(field.annotation):
            here = f"{at}.{field.alias or name}"
            yield from [here] if found is wanted else paths(found, wanted, here)


@pytest.fixture(scope="module")
def asked(render: Render) -> set[str]:
    """Fields that the policy reads."""
    policy = render({"authors": {"askRights": "always"}}).one(
        "ValidatingAdmissionPolicy", "learnloop-system-learnloop-authors"
    )
    text = " ".join(item["expression"] for item in policy["spec"]["variables"])
    return {found.replace("?", "") for found in re.findall(r"\bobject\.\?(spec[.?A-Za-z]+)", text)}


@pytest.mark.parametrize("wanted", [PodOptions, SecretKeyRef, ModelVolume])
def test_the_policy_asks_about_every_such_field_of_every_kind(asked: set[str], wanted: type[BaseModel]) -> None:
    found = {path for spec in SPECS for path in paths(spec, wanted)}
    assert found
    assert found <= asked, f"nobody is asked about {sorted(found - asked)}"


def test_what_was_there_before_is_compared_field_by_field(render: Render) -> None:
    policy = render({"authors": {"askRights": "always"}}).one(
        "ValidatingAdmissionPolicy", "learnloop-system-learnloop-authors"
    )
    said = {item["name"]: item["expression"] for item in policy["spec"]["variables"]}
    for now, before in (("pods", "before"), ("secrets", "known"), ("models", "modelsBefore")):
        old = set(re.findall(r"oldObject\.\?(spec[.?A-Za-z]+)", said[before]))
        assert old == set(re.findall(r"\bobject\.\?(spec[.?A-Za-z]+)", said[now]))


def test_the_policy_asks_about_every_field_of_a_pod(render: Render) -> None:
    policy = render({"authors": {"askRights": "always", "free": []}}).one(
        "ValidatingAdmissionPolicy", "learnloop-system-learnloop-authors"
    )
    said = {item["name"]: item["expression"] for item in policy["spec"]["variables"]}
    named = set(re.findall(r"'(\w+)'", said["fields"].split("]")[0]))
    assert set(PodOptions.model_json_schema(by_alias=True)["properties"]) <= named
