"""The code blocks of the documentation's pages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block: where it stands, and its text without the indentation."""

    place: str
    language: str
    text: str


def pages() -> list[Path]:
    """Everything a reader of the documentation may see, but for what is generated."""
    written = ("asvs.md", "third-parties.md")
    paths = [path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts or path.name in written]
    return sorted(
        [*paths, *ROOT.glob("*.md"), *(ROOT / "charts").rglob("README.md"), *(ROOT / "examples").rglob("*.md")]
    )


def blocks(language: str) -> Iterator[Block]:
    for path in pages():
        text = path.read_text()
        for match in _FENCE.finditer(text):
            if match["language"] == language:
                line = text.count("\n", 0, match.start()) + 1
                lines = match["text"].split("\n")
                cut = len(match["indent"])
                yield Block(f"{path.relative_to(ROOT)}:{line}", language, "\n".join(item[cut:] for item in lines))
