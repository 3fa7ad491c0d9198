"""An answer from more than one session: the next memory of a session counts a little less than the one before. Pure.

What answers a question in several turns is often said on several days, and the ten best of one day leave no place for
the others.
"""

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.ranking.columns import Floats
from learnloop_dataplane.ranking.word_postings import Rows

LESS = 0.5  # of a score, for each memory of the same session that comes before


def spread(scores: Floats, threads: NDArray[np.int64]) -> tuple[Rows, Floats]:
    """The order of these memories, as places in what is given, and their scores less what is taken off.

    That is the order in which they come when each time the best is taken and the rest of its session falls by LESS:
    within a session the order stays, so that what falls off each is known beforehand.

    Args:
        scores: highest first, float64 [n].
        threads: the session of each, int64 [n]; 0 for none, of which nothing is taken off.
    """
    by_session = np.argsort(threads, kind="stable")
    grouped = threads[by_session]
    before = np.empty(len(scores), np.int64)
    before[by_session] = np.arange(len(scores)) - np.searchsorted(grouped, grouped)
    left = scores - LESS * np.where(threads == 0, 0, before)
    order: Rows = np.argsort(-left, kind="stable")
    return order, left[order]
