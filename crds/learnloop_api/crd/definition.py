"""CustomResourceDefinitions as documents and as YAML files."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from learnloop_api.crd.kinds import KINDS, Kind
from learnloop_api.crd.schema import Schema, spec_schema, status_schema
from learnloop_api.kinds.base import RULES, Rule
from learnloop_api.names import CATEGORY, GROUP, VERSION

STANDARD_TEXTS = {
    "apiVersion": "Versioned schema of this object: learnloop.dev/v1alpha1.",
    "kind": "Name of the resource this object is.",
}


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind. Nothing in it depends on where or when it is made."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [column.to_crd() for column in kind.columns],
        "schema": {"openAPIV3Schema": _root(kind)},
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return version


def _subresources(kind: Kind) -> dict[str, Any]:
    if kind.scale is None:
        return {"status": {}}
    scale = {
        "specReplicasPath": kind.scale,
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {"status": {}, "scale": scale}


def _root(kind: Kind) -> Schema:
    name_rules = [
        Rule(
            f"self.metadata.name.size() <= {kind.name_limit}",
            f"must have at most {kind.name_limit} characters: objects named after it need the rest",
            ".metadata.name",
        ),
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "must be lower-case letters, digits and '-', start with a letter and end with a letter or "
            "digit: Services are named after it",
            ".metadata.name",
        ),
    ]
    return {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            **{name: {"description": text, "type": "string"} for name, text in STANDARD_TEXTS.items()},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": spec_schema(kind.spec),
            "status": status_schema(kind.status),
        },
        RULES: [rule.to_schema() for rule in name_rules],
    }


HEADER = "# Made from learnloop_api by `make crds`. Change the models, not this file.\n"


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out in full: Kubernetes tools refuse or mangle YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@cache
def render(kind: Kind) -> str:
    """The CustomResourceDefinition of a kind as YAML."""
    body = yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return HEADER + str(body)


def write(folder: Path) -> list[Path]:
    """Write every kind's file into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        _path(folder, kind).write_text(render(kind), encoding="utf-8")
    return [_path(folder, kind) for kind in KINDS]


def stale(folder: Path) -> list[Path]:
    """Files that are missing, differ from the models, or belong to no kind."""
    wanted = {_path(folder, kind): render(kind) for kind in KINDS}
    fields = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(path for path in wanted.keys() | fields.keys() if wanted.get(path) != fields.get(path))


def _path(folder: Path, kind: Kind) -> Path:
    return folder / f"{kind.plural}.yaml"
