"""The YAML files: one for each kind, the same bytes for the same models."""

from functools import cache
from pathlib import Path

import yaml

from learnloop_api.crd.definition import definition
from learnloop_api.crd.kinds import KINDS, Kind

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
    found = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))


def _path(folder: Path, kind: Kind) -> Path:
    return folder / f"{kind.plural}.yaml"
