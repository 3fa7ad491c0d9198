"""Which memories an answer shows by a coin, so that what came of it says whether another order would do better. Pure.

The coin is thrown between two answers: that of the weights in use, and one in which those of its memories that the
other ranker likes least make room for those it likes best. Whether the alternative was shown depends on nothing but the
coin, so whatever the rewards do by themselves (rise, fall, follow the hour) has no correlation with it.
"""

from random import Random

import numpy as np

from learnloop_dataplane.ranking.columns import Floats
from learnloop_dataplane.ranking.learned_ranker import Ranker
from learnloop_dataplane.ranking.relevance_signals import STATIC, weight_vector

LABELLED = 0.1  # one recall in ten, its last place, where only labels teach: they say by themselves what helped
TRYING = 0.5  # of the recalls, at most half of the places, while rewards are to prove the ranker
WATCHING = 0.1  # as many places of fewer recalls, when that is settled, has taken too long, or looks bad
SHAKEN = (
    0.5  # standard deviations of what the weights may be: enough to learn, and what is shown stays near what is tested
)
PATIENCE = 1000  # rewards
BAD = -1.0  # standard errors


def explore(z: Floats, k: int, ranker: Ranker, random: Random) -> tuple[list[int], list[float]]:
    """The order in which ranked candidates are shown, and the probability of each to be among the k shown.

    Memories that stay keep their order and come first, the exchanged ones follow. What is exchanged is at most half of
    the places, and only where the alternative prefers another memory.

    Args:
        z: signals of the candidates in the order of the weights in use, float64 [n, 6].
        random: throws the coin and shakes the alternative's weights by what is uncertain about them.
    """
    n = len(z)
    share, places = _share(ranker, k)
    places = min(places, n - k)
    plain = [1.0] * min(k, n) + [0.0] * max(n - k, 0)
    if places <= 0:
        return list(range(n)), plain
    other = weight_vector(STATIC) if ranker.active else np.array(ranker.weights)
    shaken = np.array([random.gauss() for _ in other])
    liked = z @ (other + SHAKEN * (ranker.root @ shaken))
    first = 0 if ranker.rewards else k - places  # labels alone: the last places leave, however the rest is liked
    out = first + np.argsort(liked[first:k])[:places]
    into = k + np.argsort(-liked[k:])[:places]
    swaps = int(np.count_nonzero(liked[into] > liked[out]))
    leaving, coming = out[:swaps].tolist(), into[:swaps].tolist()
    for index in leaving:
        plain[index] = 1.0 - share
    for index in coming:
        plain[index] = share
    if random.random() >= share:
        return list(range(n)), plain
    gone, come = set(leaving), set(coming)
    order = [index for index in range(k) if index not in gone] + sorted(coming)
    order += [index for index in range(n) if index in gone or (index >= k and index not in come)]
    return order, [plain[index] for index in order]


def _share(ranker: Ranker, k: int) -> tuple[float, int]:
    """Of how many recalls the alternative is shown, and how many places it may have; never the only one."""
    if not ranker.rewards:
        return LABELLED, min(1, k // 2)
    trying = not ranker.active and ranker.rewards < PATIENCE and ranker.bets.standing > BAD
    return (TRYING if trying else WATCHING), k // 2
