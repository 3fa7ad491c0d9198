"""kubeconform (github.com/yannh/kubeconform) on manifests: each field against the definition of the object's kind.

It downloads no schema: they are made of the definitions that our own builds use.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from testing.manifests.definitions import schemas

TEMPLATE = "{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json"
NOT_LOOKED_AT = {
    "argoproj.io/v1alpha1/Application": "`make argocd` applies the example by a real Argo CD",
    "argoproj.io/v1alpha1/WorkflowTemplate": "Argo Workflows' definition comes with no module of ours",
    "source.toolkit.fluxcd.io/v1/GitRepository": "`make flux` applies the example by a real Flux",
    "kustomize.toolkit.fluxcd.io/v1/Kustomization": "the same",
    "helm.toolkit.fluxcd.io/v2/HelmRelease": "Flux' helm-controller is not a module of ours",
}
"""Kinds of examples without a definition here → what looks at them instead, or why nothing does."""


class Misfit(NamedTuple):
    """One fault of one object."""

    target: str
    """KIND/NAME."""
    sentence: str


def write_schemas(folder: Path) -> int:
    """A file for each kind into `folder`; how many. Raises what `definitions.schemas` raises."""
    count = 0
    for (group, version, kind), schema in schemas():
        # kubeconform takes the version of kinds without a group, such as v1, for their group.
        name = f"{group or version}_{version}_{kind.lower()}.json"
        (folder / name).write_text(json.dumps(schema), encoding="utf-8")
        count += 1
    return count


def misfits(program: Path, folder: Path, text: str, *, others: frozenset[str] = frozenset()) -> list[Misfit]:
    """The misfits in these YAML documents, a kind without a schema in `folder` included.

    Args:
        others: kinds that are not looked at, as API-VERSION/KIND.

    Raises:
        RuntimeError: kubeconform said nothing that can be read.
    """
    options = ["-strict", "-output", "json", "-schema-location", f"{folder}/{TEMPLATE}"]
    if others:
        options += ["-skip", ",".join(sorted(others))]
    command: list[str | Path] = [program, *options, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240, check=False)
    try:
        resources: list[dict[str, Any]] = json.loads(done.stdout)["resources"]
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(f"kubeconform ended with {done.returncode}: {done.stderr[-2000:]}") from None
    return [
        Misfit(f"{item['kind']}/{item['name']}", sentence)
        for item in resources
        if item["status"] not in ("statusValid", "statusSkipped")
        for sentence in _sentences(item)
    ]


def _sentences(item: dict[str, Any]) -> list[str]:
    errors = item.get("validationErrors") or ()
    return [f"{one['path']}: {one['msg']}" for one in errors] or [item["msg"]]
