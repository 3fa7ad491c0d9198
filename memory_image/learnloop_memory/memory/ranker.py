"""A linear ranker for one agent that learns which signals point to memories that help. Pure.

It runs in the shadow of the static weights until an e-process says that it ranks better, and goes back when another
one says that it does not: both are test martingales (Ville, 1939; Ramdas et al., 2023, arXiv 2210.01948), so looking
after every feedback costs nothing, and a ranker no better than the static one is used with probability at most 1/20.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson

from learnloop_memory.memory.columns import Floats
from learnloop_memory.memory.signals import SIGNALS, STATIC, weight_vector

RATE = 0.05
PULL = 0.002  # towards the static weights: what no feedback speaks about stays as it was
BET = 0.3
PROOF = math.log(20.0)
FEWEST = 30
EXPLORED = 0.1
REACH = 5  # how far behind the last place an explored memory may come from
MOST_WEIGHT = 10.0  # of an importance weight 1/p; bounds the variance at the price of a small bias
LONGEST = 3.0  # of a step's gradient


@dataclass(frozen=True)
class Ranker:
    """What has been learned.

    Attributes:
        weights: one for each of SIGNALS.
        feedbacks: how many it has seen.
        evidence: log of the capital won by betting that it ranks better than the static weights.
        doubt: the same for the opposite bet, since it is in use.
        active: is it in use?
        mean, spread: running mean and sum of squared deviations of the rewards.
    """

    weights: tuple[float, ...] = field(default_factory=lambda: tuple(STATIC[name] for name in SIGNALS))
    feedbacks: int = 0
    evidence: float = 0.0
    doubt: float = 0.0
    active: bool = False
    mean: float = 0.0
    spread: float = 0.0

    def vector(self) -> Floats:
        """The weights recall uses: its own when it has proved itself, the static ones until then."""
        return np.array(self.weights) if self.active else weight_vector(STATIC)

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> "Ranker":
        """As stored; a state with another number of signals is an older release's and starts over."""
        if not state or len(state.get("weights", ())) != len(SIGNALS):
            return cls()
        return cls(**{**state, "weights": tuple(state["weights"])})

    @classmethod
    def from_text(cls, state: str | None) -> "Ranker | None":
        """As PostgreSQL hands it out; None for an agent that never got feedback."""
        return cls.from_state(orjson.loads(state)) if state else None


@dataclass(frozen=True)
class Shown:
    """One logged recall: features float64 [n, 6], the first `k` rows were shown, with these probabilities."""

    features: Floats
    k: int
    propensities: Floats


def explore(n: int, k: int, draw: float, pick: float) -> tuple[list[int], list[float]]:
    """The order in which n ranked candidates are shown, and the probability of each to be among the k shown.

    The last place goes, one time in ten, to one of the next five: without it a log could never tell what would have
    helped. The first places are never touched.

    Args:
        draw, pick: two uniform numbers from [0, 1).
    """
    order = list(range(n))
    reach = min(REACH, n - k)
    if reach <= 0 or k < 2:
        return order, [1.0] * min(k, n) + [0.0] * max(n - k, 0)
    chances = [1.0] * (k - 1) + [1.0 - EXPLORED] + [EXPLORED / reach] * reach + [0.0] * (n - k - reach)
    if draw < EXPLORED:
        other = k + min(int(pick * reach), reach - 1)
        order[k - 1], order[other] = order[other], order[k - 1]
        chances[k - 1], chances[other] = chances[other], chances[k - 1]
    return order, chances


def learn_from_labels(ranker: Ranker, shown: Shown, helpful: Sequence[int]) -> Ranker:
    """Someone said which of the logged memories helped (row numbers): pairwise logistic steps (Burges et al., 2005)."""
    rest = [index for index in range(shown.k) if index not in set(helpful)]
    if not helpful or not len(shown.features):
        return replace(ranker, feedbacks=ranker.feedbacks + 1)
    better = gain(shown, ranker.weights, helpful) - gain(shown, weight_vector(STATIC), helpful)
    weights = np.array(ranker.weights)
    step = np.zeros(len(SIGNALS))
    for index in helpful:
        for other in rest:
            apart = shown.features[index] - shown.features[other]
            step += apart / (1.0 + math.exp(min(float(weights @ apart), 50.0)))
    return _moved(_judged(ranker, better), step / max(len(helpful) * len(rest), 1))


def learn_from_reward(ranker: Ranker, shown: Shown, reward: float) -> tuple[Ranker, float]:
    """The episode that recalled these got this reward: a policy-gradient step weighted by 1/propensity.

    Returns the ranker and the advantage in [-1, 1]: how much better than this agent\'s usual reward it was.
    """
    n = ranker.feedbacks
    deviation = math.sqrt(ranker.spread / n) if n > 1 else 1.0
    advantage = max(-1.0, min(1.0, (reward - ranker.mean) / (2.0 * max(deviation, 0.1)))) if n else 0.0
    mean = ranker.mean + (reward - ranker.mean) / (n + 1)
    ranker = replace(ranker, mean=mean, spread=ranker.spread + (reward - ranker.mean) * (reward - mean))
    if not len(shown.features) or advantage == 0.0:
        return replace(ranker, feedbacks=n + 1), advantage
    inverse = np.minimum(1.0 / np.maximum(shown.propensities[: shown.k], 1e-6), MOST_WEIGHT)
    better = advantage * (_overlap(shown, ranker.weights, inverse) - _overlap(shown, weight_vector(STATIC), inverse))
    middle = shown.features.mean(axis=0)
    step = advantage * (inverse[:, None] * (shown.features[: shown.k] - middle)).mean(axis=0)
    return _moved(_judged(ranker, better), step), advantage


def gain(shown: Shown, weights: Sequence[float] | Floats, helpful: Sequence[int]) -> float:
    """nDCG@k of the logged candidates in the order of these weights, from 0 to 1."""
    order = np.argsort(-(shown.features @ np.array(weights)), kind="stable")[: shown.k].tolist()
    ideal = sum(1.0 / math.log2(place + 2) for place in range(min(len(helpful), shown.k)))
    return sum(1.0 / math.log2(order.index(index) + 2) for index in helpful if index in order) / max(ideal, 1e-9)


def credits(k: int, advantage: float) -> list[float]:
    """What each of k shown memories gets of an advantage: by rank, because the first is read first; sums to it."""
    weights = [1.0 / math.log2(place + 2) for place in range(k)]
    return [advantage * weight / sum(weights) for weight in weights]


def utility(helped: float, hurt: float) -> float:
    """From -1 to 1; two virtual neutral outcomes keep one lucky recall from deciding."""
    return (helped - hurt) / (helped + hurt + 2.0)


UTILITY = "((u.helped - u.hurt) / (u.helped + u.hurt + 2.0))::real"
"""The same in SQL, of a row `u` of `memory_use`."""


def _overlap(shown: Shown, weights: Sequence[float] | Floats, inverse: Floats) -> float:
    """How much of what these weights would have shown was shown, each memory weighted by 1/propensity."""
    order = np.argsort(-(shown.features @ np.array(weights)), kind="stable")[: shown.k]
    was = order[order < shown.k]
    return float(inverse[was].sum()) / (shown.k * MOST_WEIGHT)


def _judged(ranker: Ranker, better: float) -> Ranker:
    """Bets on a difference in [-1, 1] that was computed before the ranker learned from it."""
    better = max(-1.0, min(1.0, better))
    evidence = ranker.evidence + math.log1p(BET * better)
    doubt = max(0.0, ranker.doubt + math.log1p(-BET * better)) if ranker.active else 0.0
    if ranker.active and doubt >= PROOF:
        # Proved worse since it is in use: back into the shadow, where it has to prove itself from nothing.
        return replace(ranker, active=False, evidence=0.0, doubt=0.0)
    active = ranker.active or (evidence >= PROOF and ranker.feedbacks >= FEWEST)
    return replace(ranker, evidence=evidence, doubt=doubt, active=active)


def _moved(ranker: Ranker, step: Floats) -> Ranker:
    length = float(np.linalg.norm(step))
    if length > LONGEST:
        step = step * (LONGEST / length)
    weights = np.array(ranker.weights)
    weights = weights + RATE * step - PULL * (weights - weight_vector(STATIC))
    return replace(ranker, weights=tuple(float(w) for w in weights), feedbacks=ranker.feedbacks + 1)
