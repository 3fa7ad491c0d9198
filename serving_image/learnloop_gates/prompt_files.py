"""Cases that a user brings: the .jsonl files of the suite's ConfigMap, one case a line.

A line has `prompt`, or `messages` as OpenAI writes them; `system` and `tools` where wanted. What else it has are the
facts that its suite judges by.
"""

from pathlib import Path
from typing import Any

import orjson

from learnloop_gates.cases import Case, said
from learnloop_gates.errors import SuiteError

MOST_LINES = 100_000
_PARTS = ("prompt", "messages", "system", "tools")


def rows(folder: str) -> list[dict[str, Any]]:
    """All lines of all files, in the order of their names.

    Raises:
        SuiteError: there is none, or a line is no JSON object; names file, line and fix.
    """
    found: list[dict[str, Any]] = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                raise SuiteError(f"{path.name}:{number}: no JSON: {error}") from None
            if not isinstance(row, dict):
                raise SuiteError(f"{path.name}:{number}: write one JSON object a line")
            found.append(row)
    if not found:
        raise SuiteError(f"{folder}: no key of the ConfigMap ends in .jsonl and has a line: add the prompts")
    return found[:MOST_LINES]


def case_of(row: dict[str, Any], prompt: str | None = None) -> Case:
    """The case of one line; `prompt` instead of the line's own where it is filled in.

    Raises:
        SuiteError: it asks nothing.
    """
    facts = {key: value for key, value in row.items() if key not in _PARTS}
    tools = tuple(row.get("tools") or ())
    text = prompt if prompt is not None else row.get("prompt")
    if isinstance(text, str) and text:
        return Case(said(text, str(row.get("system") or "")), tools, facts)
    messages = row.get("messages")
    if isinstance(messages, list) and messages:
        return Case(tuple(messages), tools, facts)
    raise SuiteError(f"a line asks nothing: {str(row)[:120]}: set prompt or messages")


def need(row: dict[str, Any], key: str, kind: type) -> Any:
    """A fact that the suite cannot do without; raises SuiteError where it is missing."""
    value = row.get(key)
    if not isinstance(value, kind) or not value:
        raise SuiteError(f"{key}: missing in a line, or no {kind.__name__}: {str(row)[:120]}")
    return value
