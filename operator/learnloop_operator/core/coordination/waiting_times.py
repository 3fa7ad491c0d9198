"""When a waiting run will begin: what runs ends in order, and each end lets the next one in."""

import heapq
from collections.abc import Mapping, Sequence

from learnloop_operator.core.coordination.scheduler import Key


def waiting_times(order: Sequence[Key], ends: Sequence[float], lengths: Mapping[Key, float]) -> dict[Key, float]:
    """Seconds until each of the queue begins, as far as that can be told.

    An estimate: it takes each place for as good as any other, whatever GPUs and namespaces it needs.

    Args:
        ends: seconds left of each run that runs now and of which that is known.
        lengths: how long each waiting run will take, where that is known.
    """
    free = list(ends)
    heapq.heapify(free)
    found: dict[Key, float] = {}
    for key in order:
        if not free:
            break
        begins = heapq.heappop(free)
        found[key] = begins
        if key in lengths:
            heapq.heappush(free, begins + lengths[key])
    return found
