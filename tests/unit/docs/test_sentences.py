"""No sentence of the documentation is so long that a reader must read it twice."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .blocks import ROOT, pages

MAX_WORDS = 30
RECORDS = ROOT / "docs" / "measurements"  # what was written down while measuring, kept as it was
PAGES = [
    path
    for path in [*pages(), *sorted((ROOT / "docs" / "reference" / "kinds").glob("*.md"))]
    if not path.is_relative_to(RECORDS)
]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, without its code. What stands in backticks counts as one word."""
    text = re.sub(r"^<!--.*?-->|```.*?```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. |#|\|)", text):
        for cell in block.split("|") if block.lstrip().startswith("|") else [block]:
            plain = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", cell))
            yield from re.split(r"(?<=[.!?:;])\s+", " ".join(plain.split()))


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES])
def test_no_sentence_has_more_than_thirty_words(path: Path) -> None:
    assert [sentence for sentence in sentences(path.read_text()) if len(sentence.split()) > MAX_WORDS] == []
