"""The help takes no time: nothing heavy is imported for it, and of the verbs only the one that is named."""

import json
import subprocess
import sys

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


def test_the_help_imports_typer_and_no_verb() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, "--help"], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert not HEAVY & {name.partition(".")[0] for name in modules}
    own = {name for name in modules if name.startswith(f"{PACKAGE}.")}
    assert own == {f"{PACKAGE}.main", f"{PACKAGE}.objects"}


def test_every_verb_of_the_help_is_one_of_its_own_name() -> None:
    for name in VERBS:
        assert name == load(name).__name__
