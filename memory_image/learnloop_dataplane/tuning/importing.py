"""What the start of the process does without while its modules are imported."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from learnloop_dataplane.tuning.switches import SWITCHES

UNUSED = ("pydantic.v1",)
"""FastAPI looks there for models of pydantic 1, which nobody here has, and does without where it is absent: 27 modules,
1.5 MiB and 30 ms."""


@contextmanager
def lightly() -> Iterator[None]:
    """Imports within make no libraries' unused parts, and nobody looks through what they make for garbage.

    Modules, classes and functions stay for good. Python would look through all of them a hundred times, which took a
    quarter of the start, and find 800 objects to free. The parts `garbage-collection` and `unused-libraries` switch the
    two off.
    """
    if SWITCHES.is_on("unused-libraries"):
        for name in UNUSED:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # Python's way to say that there is none
    if not SWITCHES.is_on("garbage-collection"):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
