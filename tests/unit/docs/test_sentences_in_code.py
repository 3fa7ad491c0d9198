"""No docstring of the product and no refusal has a sentence so long that a reader must read it twice."""

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

from .blocks import ROOT
from .test_sentences import MAX_WORDS, sentences

FOLDERS = ("agent_sdk", "crds", "hack", "memory_image", "operator", "serving_image", "trainer_image")
SET_APART = re.compile(r"^ {4,}.*$", re.MULTILINE)
"""Formulas stand in lines of their own."""
FORMULA = re.compile(r" [=~] ")


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings, texts below an attribute, and what a refusal says; a value in a message counts as one word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, SET_APART.sub("", inspect.cleandoc(node.value.value))
        elif isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.JoinedStr):
                    values = (item.value if isinstance(item, ast.Constant) else "X" for item in part.values)
                    yield part.lineno, "".join(map(str, values))
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_and_no_refusal_has_a_sentence_of_more_than_thirty_words(folder: str) -> None:
    long = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for line, text in _texts(ast.parse(path.read_text())):
            texts = (item for item in sentences(text) if len(item.split()) > MAX_WORDS and not FORMULA.search(item))
            long += [f"{path.relative_to(ROOT)}:{line}: {sentence}" for sentence in texts]
    assert long == []
