"""`kubectl learnloop` as it is typed, against a cluster of the test's own."""

from typing import Any, NamedTuple
from unittest.mock import patch

from learnloop_operator.cli import main
from learnloop_operator.cli.data_plane_access import DataPlaneAccess, DataPlaneOptions


class Call(NamedTuple):
    """A command line as it was understood."""

    verb: Any
    access: dict[str, Any]
    plane: dict[str, Any] | None
    values: dict[str, Any]


def parsed(*words: str) -> Call:
    """Parse a command line; raises typer's exceptions where it is wrong."""
    calls = list[Call]()
    with patch.object(main, "run_verb", lambda *call: calls.append(Call(*call))):
        main.app(list(words), standalone_mode=False)
    return calls[0]


def typed(cluster: Any, *words: str) -> str:
    """Run a command line against this cluster; the text that it prints."""
    call = parsed(*words)
    plane = {} if call.plane is None else {"plane": DataPlaneAccess(cluster, DataPlaneOptions(**call.plane))}
    return str(call.verb(cluster, **call.values, **plane))
