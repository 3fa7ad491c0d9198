"""A type's name says which type it is: a package has no two classes of one name."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = sorted(path for path in ROOT.glob("*/learnloop_*") if path.is_dir())


@pytest.mark.parametrize("package", [pytest.param(path, id=path.name) for path in PACKAGES])
def test_no_two_classes_of_a_package_have_one_name(package: Path) -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(package)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_api_shows_its_callers_names_and_no_modules_of_ours() -> None:
    """FastAPI puts the module before the name of a model where two of them have one name."""
    assert "learnloop_api__" not in (ROOT / "docs" / "reference" / "rest.md").read_text()
