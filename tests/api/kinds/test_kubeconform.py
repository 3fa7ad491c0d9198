"""Every manifest of ours by kubeconform: the chart, what the operator makes, the examples, our own definitions.

A real API server refuses the same, but for kinds of other projects that it does not know, and one object at a time.
"""

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from go_programs import go_build
from testing.manifests.__main__ import all_misfits, documents, written
from testing.manifests.kubeconform import NOT_LOOKED_AT, misfits, write_schemas

ROOT = Path(__file__).resolve().parents[3]
FREE = ("labels", "annotations", "matchLabels", "selector", "nodeSelector", "data", "stringData", "limits", "requests")
FREE += ("hard", "parameters", "pytorchReplicaSpecs")
"""Fields whose names below are the writer's own."""


@pytest.fixture(scope="module")
def helm() -> Path:
    found = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, timeout=240)
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())


@pytest.fixture(scope="module")
def program() -> Path:
    return go_build.ensure(go_build.KUBECONFORM, ["kubeconform"])["kubeconform"]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


def paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every field whose name a kind's definition gives."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield (*path, name)
            if name not in FREE:
                yield from paths(value, (*path, name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from paths(value, (*path, index))


def misspelt(item: dict[str, Any], path: tuple[Any, ...], name: str) -> dict[str, Any]:
    """The object with one field's name changed."""
    changed = copy.deepcopy(item)
    *above, last = path
    place = changed
    for step in above:
        place = place[step]
    place[f"{last}Odd"] = place.pop(last)
    changed["metadata"]["name"] = name
    return changed


def test_every_manifest_fits_the_definition_of_its_kind(program: Path, helm: Path) -> None:
    assert all_misfits(program, helm) == []


def test_a_misspelt_field_is_found_wherever_it_stands(program: Path, helm: Path, schemas: Path) -> None:
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for _, text in documents(helm):
        for item in filter(None, yaml.safe_load_all(text)):
            kinds.setdefault((item["apiVersion"], item["kind"]), item)
    wrong, where = [], {}
    for (_, kind), item in kinds.items():
        for path in paths(item):
            if path[0] not in ("apiVersion", "kind") and path not in (("metadata",), ("metadata", "name")):
                name = f"odd-{len(wrong)}"
                wrong.append(misspelt(item, path, name))
                where[f"{kind}/{name}"] = path
    found = {one.target for one in misfits(program, schemas, yaml.safe_dump_all(wrong))}
    assert len(wrong) > 1000
    assert {target: path for target, path in where.items() if target not in found} == {}


def test_a_kind_that_nobody_defines_is_named(program: Path, schemas: Path) -> None:
    text = yaml.safe_dump({"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "x"}})
    (found,) = misfits(program, schemas, text)
    assert found.target == "Unknown/x"
    assert "could not find schema" in found.said


def test_what_is_not_looked_at_is_in_the_examples_still(program: Path) -> None:
    kinds = {
        f"{item['apiVersion']}/{item['kind']}"
        for _, text in written()
        for item in filter(None, yaml.safe_load_all(text))
    }
    assert set(NOT_LOOKED_AT) <= kinds
