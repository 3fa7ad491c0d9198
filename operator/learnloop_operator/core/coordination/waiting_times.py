"""When a waiting run will begin: what runs ends in order, and each end lets the next one in."""

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence

from learnloop_operator.core.coordination.scheduler import Key


def waiting_times(
    order: Sequence[Key], ends: Iterable[tuple[float, str]], lengths: Mapping[Key, float], of_own: Collection[Key] = ()
) -> dict[Key, float]:
    """Seconds until each of the queue begins, as far as that can be told.

    An estimate: it takes each place for as good as any other, however many GPUs it has.

    Args:
        ends: seconds left of each run that runs now and of which that is known, and its namespace.
        lengths: how long each waiting run will take, where that is known.
        of_own: those that wait for a place of their own namespace.
    """
    free = sorted(ends)
    found: dict[Key, float] = {}
    for key in order:
        end = next((end for end in free if key not in of_own or end[1] == key[0]), None)
        if end is None:
            continue
        free.remove(end)
        found[key] = end[0]
        if key in lengths:
            insort(free, (end[0] + lengths[key], key[0]))
    return found
