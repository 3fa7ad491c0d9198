"""The documentation's pages are found, current and complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import ROOT, pages

DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
MADE = {"dist", "shared"}
FOLDERS = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and path.name not in MADE)


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "hack/reference", "check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in DECISIONS])
def test_a_decision_is_in_the_index(path: Path) -> None:
    assert f"({path.name})" in (ROOT / "docs" / "decisions" / "index.md").read_text()


def test_the_index_names_no_decision_that_is_gone() -> None:
    named = re.findall(r"\((0[^)]+\.md)\)", (ROOT / "docs" / "decisions" / "index.md").read_text())
    assert sorted(named) == [path.name for path in DECISIONS]


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in pages()])
def test_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{target} does not exist"
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file.read_text()), f"{target}#{anchor}: no such heading"


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_example_is_in_the_index_of_examples() -> None:
    index = (ROOT / "examples" / "README.md").read_text()
    for folder in sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir()):
        assert f"({folder.name}/" in index, f"examples/{folder.name} is not in examples/README.md"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in DECISIONS])
def test_a_decision_has_its_status_date_context_decision_and_consequences(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"^Status: (accepted|replaced by .+|rejected) · Date: \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    places = [text.find(f"\n## {part}\n") for part in ("Context", "Decision", "Consequences")]
    assert -1 not in places, "a section is missing"
    assert places == sorted(places), "the sections are in another order"
    assert len(text.split()) <= 1100, "longer than a page: figures belong into docs/measurements"


def test_the_first_page_has_no_line_over_120_characters() -> None:
    assert [line for line in (ROOT / "README.md").read_text().split("\n") if len(line) > 120] == []


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in pages()])
def test_files_and_make_targets_that_the_text_names_exist(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    words = [word.strip(",;()'\"") for code in re.findall(r"`([^`]+)`", text) for word in code.split()]
    named = [
        word.split(":")[0].rstrip("/") for word in words if word.startswith(FOLDERS) and not set(word) & set("*…<{")
    ]
    assert [name for name in named if not (ROOT / name).exists()] == []
    targets = re.findall(r"`make ([a-z][a-z0-9-]*)", text)
    assert set(targets) <= set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
