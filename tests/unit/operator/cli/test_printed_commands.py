"""Every command that the product prints works: its verb exists, and its options are the verb's."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from learnloop_api.names import GROUP, VERBS
from learnloop_operator.cli import main

ROOT = Path(__file__).parents[4]
PARTS = ("crds", "operator", "trainer_image", "serving_image", "memory_image", "agent_sdk")
PLACEHOLDER = "x"
COMMAND = re.compile(r"kubectl learnloop ([a-z]\w*)((?: +(?:--?[a-z][-a-z0-9]*|[A-Za-z_./:]+))*)")
RAW = re.compile(rf"{re.escape(GROUP)}/(?:train|{'|'.join(VERBS)})\b")


def texts(path: Path) -> Iterator[str]:
    """The strings of a module, with a placeholder for each value; adjoining literals are one."""
    tree = ast.parse(path.read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def sources(word: str) -> Iterator[tuple[str, str]]:
    """The texts of files that have this word: parsing all files takes seconds."""
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            for text in texts(path) if word in path.read_text() else ():
                yield str(path.relative_to(ROOT)), text
    for pattern in ("charts/learnloop/**/*.*", "operator/learnloop_operator/cli/console/pages/*", "docs/**/*.md"):
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix in (".yaml", ".tpl", ".txt", ".md", ".js", ".html", ".json"):
                yield str(path.relative_to(ROOT)), path.read_text()


OPTIONS = {name: {option for one in main.command(name).params for option in one.opts} for name in main.VERBS}
PROSE = {"needs", "does", "console"}


def works(place: str, verb: str, rest: str) -> bool:
    if verb == PLACEHOLDER or (place.startswith("docs/") and verb in PROSE):
        return True
    return verb in OPTIONS and {word for word in rest.split() if word.startswith("-")} <= OPTIONS[verb] | {"--help"}


def test_a_printed_command_has_a_verb_and_options_that_exist() -> None:
    commands = {(place, *match.groups()) for place, text in sources("kubectl") for match in COMMAND.finditer(text)}
    assert len(commands) > 50
    assert [command for command in sorted(commands) if not works(*command)] == []


def test_no_sentence_tells_a_person_to_set_an_annotation_that_would_be_refused() -> None:
    """The API server refuses an order without its author's name; `kubectl learnloop VERB` signs by itself."""
    sentences = [
        (place, text)
        for place, text in sources(GROUP)
        if place.startswith(("operator/", "crds/learnloop_api/kinds")) and RAW.search(text)
    ]
    wrong = [(place, text) for place, text in sentences if not text.startswith(GROUP) and "already obeyed" not in text]
    assert wrong == []
