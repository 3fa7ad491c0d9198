"""The page of the command line, from its own parser."""

import argparse
from collections.abc import Iterator

from learnloop_operator.cli.main import parser
from reference.markdown import code, page, table


def pages() -> Iterator[tuple[str, str]]:
    """The one page of `kubectl learnloop`."""
    top = parser()
    common = {option for action in top._actions for option in action.option_strings}
    parts = ["Every verb takes these options before or after it:", _arguments(top)]
    for path, verb in _verbs("kubectl learnloop", top):
        own = _arguments(verb, without=common)
        parts += [f"## `{path}`", str(verb.description or ""), own]
    yield "cli.md", page("Command line", "the argument parser in `operator/learnloop_operator/cli`", *parts)


def _verbs(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield f"{path} {name}", sub
                yield from _verbs(f"{path} {name}", sub)


def _arguments(parser: argparse.ArgumentParser, without: frozenset[str] | set[str] = frozenset()) -> str:
    rows = []
    for action in parser._actions:
        hidden = isinstance(action, (argparse._SubParsersAction, argparse._HelpAction))
        if hidden or without & set(action.option_strings):
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            name += f" {action.metavar or action.dest.upper()}"
        choices = f" One of {', '.join(map(str, action.choices))}." if action.choices else ""
        default = action.default
        shown = "" if default in (None, False, argparse.SUPPRESS, [], ()) else code(default)
        rows.append(
            (code(name), shown, (action.help or "").replace("%%", "%").replace("%(default)s", str(default)) + choices)
        )
    return table(("argument", "default", "meaning"), rows) if rows else ""
