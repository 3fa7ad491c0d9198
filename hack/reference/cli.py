"""The page of the command line, from typer's own commands."""

from collections.abc import Iterator
from typing import Any

from learnloop_operator.cli.main import COMMON, VERBS, command
from reference.markdown import code, page, table


def pages() -> Iterator[tuple[str, str]]:
    """The one page of `kubectl learnloop`."""
    parts = ["Every verb takes these options before or after it:", _arguments(command("why"), common=True)]
    for name, verb in VERBS.items():
        parts += [f"## `kubectl learnloop {name}`", verb.help, _arguments(command(name), common=False)]
    yield "cli.md", page("Command line", "the verbs in `operator/learnloop_operator/cli`", *parts)


def _arguments(verb: Any, *, common: bool) -> str:
    rows = []
    for parameter in verb.params:
        if (parameter.name in COMMON) is not common or parameter.name == "help":
            continue
        name = ", ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.name.upper()
        if parameter.param_type_name == "option" and not getattr(parameter, "is_flag", False):
            name += f" {parameter.metavar or parameter.name.upper()}"
        default = "" if parameter.default in (None, False, "", ()) else code(str(parameter.default))
        rows.append((code(name), default, getattr(parameter, "help", "") or ""))
    return table(("argument", "default", "meaning"), rows) if rows else ""
