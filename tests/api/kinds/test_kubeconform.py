"""Every manifest of ours by kubeconform: the chart, what the operator makes, the examples, our own definitions.

A real API server refuses the same, but for kinds of other projects that it does not know, and one object at a time.
"""

from pathlib import Path

import pytest
import yaml

from go_programs import go_build
from testing.manifests.__main__ import all_misfits, written
from testing.manifests.kubeconform import NOT_LOOKED_AT, misfits, write_schemas

FREE = ("labels", "annotations", "matchLabels", "selector", "nodeSelector", "data", "stringData", "limits", "requests")
FREE += ("hard", "parameters", "pytorchReplicaSpecs")
"""Fields whose names below are the writer's own."""


@pytest.fixture(scope="module")
def program() -> Path:
    return go_build.ensure(go_build.KUBECONFORM, ["kubeconform"])["kubeconform"]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


def test_every_manifest_fits_the_definition_of_its_kind(program: Path, helm: Path) -> None:
    assert all_misfits(program, helm) == []


def test_a_kind_that_nobody_defines_is_named(program: Path, schemas: Path) -> None:
    text = yaml.safe_dump({"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "x"}})
    (misfit,) = misfits(program, schemas, text)
    assert misfit.target == "Unknown/x"
    assert "could not find schema" in misfit.sentence


def test_what_is_not_looked_at_is_in_the_examples_still(program: Path) -> None:
    kinds = {
        f"{item['apiVersion']}/{item['kind']}"
        for _, text in written()
        for item in filter(None, yaml.load_all(text, yaml.CSafeLoader))
    }
    assert set(NOT_LOOKED_AT) <= kinds
