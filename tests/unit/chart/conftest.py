"""The chart as Helm renders it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "learnloop"

Object = dict[str, Any]


# libyaml where PyYAML was built with it: in Python alone, reading takes longer than rendering.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _object(document: str) -> Object | None:
    """Read once, although it comes in many renderings. Not to be changed."""
    body: Object | None = yaml.load(document, LOADER)
    return body


class Rejected(Exception):
    """Helm refuses the values; the message is what a user reads."""


class Release:
    """The objects of one rendering."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.objects: list[Object] = [item for item in map(_object, text.split("\n---\n")) if item]

    def of(self, *kinds: str) -> list[Object]:
        """All objects of these kinds."""
        return [item for item in self.objects if item["kind"] in kinds]

    def one(self, kind: str, name: str) -> Object:
        """The only object of this kind and name."""
        objects = [item for item in self.of(kind) if item["metadata"]["name"] == name]
        assert len(objects) == 1, f"{len(objects)} objects {kind}/{name}"
        return objects[0]

    def pods(self) -> dict[str, Object]:
        """Every pod the release runs: owner → pod spec and labels."""
        templates = {}
        for item in self.objects:
            if item["kind"] == "Pod":
                templates[f"Pod/{item['metadata']['name']}"] = item
            elif item["kind"] in ("Deployment", "StatefulSet"):
                templates[f"{item['kind']}/{item['metadata']['name']}"] = item["spec"]["template"]
        return templates

    def environment(self, deployment: str) -> dict:
        """Variables of a Deployment's one container: name → value, or where it comes from."""
        container = self.one("Deployment", deployment)["spec"]["template"]["spec"]["containers"][0]
        return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


Render = Callable[..., Release]


@pytest.fixture(scope="session")
def helm() -> str:
    """Path of the Helm to test with."""
    done = subprocess.run(
        [sys.executable, ROOT / "hack" / "helm", "--cached"], capture_output=True, text=True, timeout=240
    )
    if done.returncode:
        pytest.skip(f"no Helm to render the chart with: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture(scope="session")
def render(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders with values; raises Rejected. Renderings are remembered: each costs a twentieth of a second.

    The definitions, nine tenths of the text, are left out unless the values say something of `crds`.
    """
    folder = tmp_path_factory.mktemp("values")
    releases: dict[str, Release] = {}

    def run(values: Mapping | None = None, *arguments: str, name: str = "learnloop") -> Release:
        key = json.dumps([values, arguments, name], sort_keys=True)
        if key not in releases:
            file = folder / f"{len(releases)}.json"
            file.write_text(json.dumps({"crds": {"enabled": False}} | dict(values or {})))
            command = [helm, "template", name, str(CHART), "-n", "learnloop-system", "-f", str(file), *arguments]
            # Helm ends before there is anything to collect.
            environment = os.environ | {"GOGC": "off"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
            if done.returncode:
                raise Rejected(done.stderr)
            releases[key] = Release(done.stdout)
        return releases[key]

    return run
