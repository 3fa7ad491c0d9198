"""The start: no garbage is looked for while modules are imported, and libraries that nobody uses stay out."""

import os
import subprocess
import sys

from learnloop_api.tuning_switches import VARIABLE

STARTED = """
import gc, sys
from learnloop_dataplane.tuning.importing import lightly

looks = []
gc.callbacks.append(lambda phase, found: looks.append(phase))
with lightly():
    from learnloop_dataplane.command_line import main
print(len(looks), gc.isenabled(), gc.get_freeze_count() > 0, "pydantic.v1.main" in sys.modules)
"""


def started(switched_off: str) -> list[str]:
    """How often garbage was looked for, whether it will be, whether what lives is left out, and is pydantic 1 there?"""
    environment = {**os.environ, VARIABLE: switched_off, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = [sys.executable, "-c", STARTED]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_the_start_looks_for_no_garbage_and_leaves_unused_libraries_out() -> None:
    assert started("") == ["0", "True", "True", "False"]


def test_without_its_tuning_the_start_imports_as_python_does() -> None:
    looks, *others = started("all")
    assert int(looks) > 10
    assert others == ["True", "False", "True"]
