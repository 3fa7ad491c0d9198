"""Python's search for cycles of garbage, made rare.

With Python's own thresholds (700, 10, 10) the search runs every few JSON bodies and takes a tenth of a busy operator's
processor time. Bodies have no cycles, and what has some is small. With the part `garbage-collection` off, they stay.
"""

import gc

from learnloop_operator.tuning.switches import SWITCHES

COLLECT_AFTER = (20_000, 20, 50)


def settle() -> None:
    """Call it once everything is imported: modules and models stay for good, and nobody looks through them again."""
    if SWITCHES.is_on("garbage-collection"):
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
