"""The help takes no time: nothing heavy is imported for it, and of the verbs only the one that is named."""

import json
import subprocess
import sys

import pytest

from learnloop_operator.cli.main import PACKAGE, VERBS, load

HEAVY = {"kubernetes", "pydantic", "yaml", "aiohttp", "urllib3", "torch", "numpy", "kopf", "rich"}
PROGRAM = """
import contextlib, io, json, sys
before = set(sys.modules)
from learnloop_operator.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_help_imports_typer_and_no_verb() -> None:
    modules = imported("--help")
    assert not HEAVY & {name.partition(".")[0] for name in modules}
    own = {name for name in modules if name.startswith(f"{PACKAGE}.")}
    assert own == {f"{PACKAGE}.main", f"{PACKAGE}.objects"}


@pytest.mark.parametrize("name", ["approve", "train", "progress", "why"])
def test_the_help_of_a_verb_needs_no_kubernetes_client(name: str) -> None:
    assert "kubernetes" not in imported(name, "--help")


def test_every_verb_of_the_help_is_one_of_its_own_name() -> None:
    for name in VERBS:
        assert name == load(name).__name__


def test_the_extra_of_the_command_line_is_enough_for_every_verb() -> None:
    others = "kopf torch numpy prometheus_client uvloop orjson cryptography opentelemetry httpx fastapi sqlmodel nats"
    program = f"""
import sys
sys.modules.update(dict.fromkeys({others.split()}))
from learnloop_operator.cli.main import VERBS, load
for name in VERBS:
    load(name)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
