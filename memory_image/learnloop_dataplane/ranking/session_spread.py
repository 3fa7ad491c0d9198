"""An answer from more than one session: its first half goes by score alone, then sessions without a place come first.
Pure.

What answers a question in several turns is often said on several days, and the ten best of one day leave no place for
the others. The best five are so often right that nothing of them is worth another day; the next five are not.
"""

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.ranking.columns import Floats
from learnloop_dataplane.ranking.word_postings import Rows

HEAD = 5  # memories that come by their scores alone
LESS = 2.0  # of a score, for each later memory of a session that has a place already; picked as docs on recall say


def spread(scores: Floats, threads: NDArray[np.int64]) -> tuple[Rows, Floats]:
    """The order of these memories, as places in what is given, and their scores less what is taken off.

    Behind the head that is the order in which they come when each time the best is taken and the rest of its session
    falls by LESS, once: the first of a session comes before its others anyway, so that it is known beforehand which.

    Args:
        scores: highest first, float64 [n].
        threads: the session of each, int64 [n]; 0 for none, of which nothing is taken off.
    """
    later = np.ones(len(scores), bool)
    later[np.unique(threads, return_index=True)[1]] = False
    later[:HEAD] = False
    left = scores - LESS * (later & (threads != 0))
    order: Rows = np.argsort(-left, kind="stable")
    return order, left[order]
