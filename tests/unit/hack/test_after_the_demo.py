"""`make demo` ends by saying where to look, with the options that reach its cluster."""

from types import SimpleNamespace

import pytest

from demo.afterwards import say_what_next
from learnloop_operator.cli.main import parser


def test_the_console_is_named_with_the_context_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    settings = SimpleNamespace(namespace="quickstart", agent="cartpole")
    say_what_next(["/opt/bin/kubectl", "--context", "kind-learnloop"], settings, None)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    [line] = [line for line in said.splitlines() if "console" in line]
    command = line.partition("&& ")[2].partition("   #")[0].split()
    assert command[0] == ".venv/bin/kubectl-learnloop"
    options = parser().parse_args(command[1:])
    assert (options.verb, options.context, options.namespace) == ("console", "kind-learnloop", "quickstart")
    assert "docs/how-to/watch-it.md" in said
