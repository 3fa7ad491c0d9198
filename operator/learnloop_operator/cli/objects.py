"""Objects as the API server gives them, errors, and text for terminals. Imports nothing heavy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

Object = dict[str, Any]
KINDS = {
    "learningagents": "LearningAgent",
    "trainingjobs": "TrainingJob",
    "rewardpolicies": "RewardPolicy",
    "modeldeployments": "ModelDeployment",
    "memoryservices": "MemoryService",
}
SHORT = {"learningagents": "la", "trainingjobs": "tjob", "modeldeployments": "mdep"}
SendRequest = Callable[[str, str, Mapping[str, str], Mapping[str, str], Object | None, float], tuple[int, str]]
"""One request: method, path, query, headers, JSON and seconds → status and body. Raises CommandError."""


class CommandError(Exception):
    """A sentence that says what is wrong and what to do; ends the command with status 1."""


class UsageError(CommandError):
    """Options that do not go together; ends the command with status 2."""


class NoAnswerError(CommandError):
    """The API server is away or busy; the same request may succeed a moment later."""


class NotAllowedError(CommandError):
    """The caller may not read this, or the kind is unknown; another namespace or kind may be readable."""


class VersionGoneError(CommandError):
    """The API server no longer has the changes since that version: list again."""


def status_of(body: Object) -> Object:
    """The object's status, empty before the operator has seen it."""
    return body.get("status") or {}


def condition(body: Object, type_: str) -> Object:
    """A condition of the object; empty when it is not reported."""
    return next((item for item in status_of(body).get("conditions", []) if item["type"] == type_), {})


WIDEST = 100_000


def rows(pairs: Iterable[tuple[str, Any]]) -> str:
    """`label  value` lines; pairs without a value are left out."""
    present = [(label, value) for label, value in pairs if value not in (None, "", [])]
    width = max((len(label) for label, _ in present), default=0)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in present)


def number(value: Any) -> str | None:
    return None if value is None else f"{float(value):.1f}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, no_wrap=True) for name in head]
    grid = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="none")
    for line in lines:
        grid.add_row(*(Text(cell) for cell in line))
    out = StringIO()
    Console(file=out, width=WIDEST, color_system=None, force_terminal=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
