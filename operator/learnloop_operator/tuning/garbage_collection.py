"""Python's search for cycles of garbage, made rare.

Python's own thresholds (700, 10, 10) look for cycles every few JSON bodies, a tenth of the processor time of a busy
operator: bodies have no cycles, and what has some is small. With the part `garbage-collection` off, they stay.
"""

import gc

from learnloop_operator.tuning.switches import is_on

COLLECT_AFTER = (20_000, 20, 50)


def settle() -> None:
    """Call it once everything is imported: modules and models stay for good, and nobody looks through them again."""
    if is_on("garbage-collection"):
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
