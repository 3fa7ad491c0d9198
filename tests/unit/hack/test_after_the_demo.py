"""`make demo` ends by saying where to look, with the options that reach its cluster."""

from types import SimpleNamespace

import pytest

from demo.afterwards import say_what_next
from testing.command_line import parsed


def test_the_console_is_named_with_the_context_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    settings = SimpleNamespace(namespace="quickstart", agent="cartpole")
    say_what_next(["/opt/bin/kubectl", "--context", "kind-learnloop"], settings, None)
    output = capsys.readouterr().out
    [line] = [line for line in output.splitlines() if "kubectl-learnloop" in line]
    command = line.partition("   #")[0].split()
    assert command[0] == "~/.learnloop/bin/kubectl-learnloop"
    assert f"{command[0].rpartition('/')[0]}/pip install ./crds './operator[console]'" in output
    call = parsed(*command[1:])
    reached = call.verb.__name__, call.access["context"], call.access["namespace"]
    assert reached == ("console", "kind-learnloop", "quickstart")
    assert "docs/how-to/watch-it.md" in output
    assert "export PATH=$PATH:/opt/bin" in output, "the plugin runs kubectl"
