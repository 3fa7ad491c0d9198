"""The cases of Argo CD's health checks and actions, as its own test format has them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "argocd" / "learnloop.dev"
TIME = re.compile(r"(?<= at )\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?= by )")


def timeless(value: Any) -> Any:
    """`value` with the moment an action was pressed taken out."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items()}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    return TIME.sub("TIMESTAMP", value) if isinstance(value, str) else value


def cases(file: str, section: str) -> list[Any]:
    """Folder and case of every kind that has such a file."""
    parameters = []
    for path in sorted(FOLDER.glob(f"*/{file}")):
        for case in yaml.safe_load(path.read_text(encoding="utf-8"))[section]:
            name = f"{path.relative_to(FOLDER).parts[0]}-{case.get('action', '')}-{Path(case['inputPath']).stem}"
            parameters.append(pytest.param(path.parent, case, id=name))
    return parameters
