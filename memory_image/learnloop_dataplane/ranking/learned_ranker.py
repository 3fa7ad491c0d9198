"""A linear ranker for one agent that learns which signals point to memories that help. Pure.

It runs in the shadow of the static weights until bets on it have won a hundredfold, and goes back when bets on the
static weights have: while it is no better than they are, it is ever put in use with probability at most 1/100, however
often one looks. Labels (which memories helped) are judged by themselves. An episode's reward says something only by way
of what was shown by a coin: learned from and bet on is `shown or not, less the probability of being shown`, which has
mean zero whatever becomes of the rewards for other reasons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from learnloop_dataplane.ranking.betting import Bets
from learnloop_dataplane.ranking.columns import Floats
from learnloop_dataplane.ranking.ranker_settings import SETTINGS
from learnloop_dataplane.ranking.relevance_signals import SIGNALS, STATIC, weight_vector

_N = len(SIGNALS)
SIGNALS_VERSION = 3  # raised when the signals, or the static weights, come to mean something else
_LOWER = np.tril_indices(_N)
_PRIOR = np.eye(_N) * SETTINGS.prior_deviation**2
_GUESS = np.eye(_N + 1) * SETTINGS.prior_expectation_variance


@dataclass(frozen=True)
class Ranker:
    """What has been learned.

    Attributes:
        weights: one for each of SIGNALS.
        feedbacks: how many it has seen, labels and rewards.
        rewards: how many of them were rewards, since it last came into the shadow.
        evidence: log of the capital won by betting that it ranks better than the static weights.
        doubt: the same for the opposite bet, since it is in use; it may begin anew, but loses nothing.
        active: is it in use?
        mean, variance: of the rewards lately.
        expected: coefficients of what advantage to expect of an answer by the mean signals of its memories, and one.
        doubted: their covariance; of this and the next the lower triangle, row by row.
        covariance: of the weights, by what rewards said.
        bets: how the coins fell.
        meaning: of the signals it learned about.
    """

    weights: tuple[float, ...] = field(default_factory=lambda: tuple(STATIC[name] for name in SIGNALS))
    feedbacks: int = 0
    rewards: int = 0
    evidence: float = 0.0
    doubt: float = 0.0
    active: bool = False
    mean: float = 0.0
    variance: float = 0.0
    expected: tuple[float, ...] = (0.0,) * (_N + 1)
    doubted: tuple[float, ...] = tuple(_GUESS[np.tril_indices(_N + 1)].tolist())
    covariance: tuple[float, ...] = tuple(_PRIOR[_LOWER].tolist())
    bets: Bets = field(default_factory=Bets)
    meaning: int = SIGNALS_VERSION

    def vector(self) -> Floats:
        """The weights recall uses: its own when it has proved itself, the static ones until then."""
        return np.array(self.weights) if self.active else weight_vector(STATIC)

    @cached_property
    def root(self) -> Floats:
        """A square root of the covariance, float64 [6, 6]."""
        return np.asarray(np.linalg.cholesky(_square(self.covariance) + 1e-5 * np.eye(_N)), np.float64)

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> "Ranker":
        """As stored.

        A state with another number of signals is an older release's and starts over, and so does one that learned when
        the signals meant something else.
        """
        if not state or len(state.get("weights", ())) != _N or state.get("meaning") != SIGNALS_VERSION:
            return cls()
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in state.items()
        }
        given: dict[str, Any] = {each.name: known[each.name] for each in fields(cls) if each.name in known}
        return cls(**given | {"bets": Bets(**known["bets"])})

    @classmethod
    def from_text(cls, state: str | None) -> "Ranker | None":
        """As PostgreSQL hands it out; None for an agent that never got feedback."""
        return cls.from_state(orjson.loads(state)) if state else None


@dataclass(frozen=True)
class LoggedRecall:
    """One logged recall: features float64 [n, 6], the first `k` rows were shown, with these probabilities."""

    features: Floats
    k: int
    propensities: Floats


def learn_from_labels(ranker: Ranker, shown: LoggedRecall, helpful: Sequence[int]) -> Ranker:
    """Someone said which of the logged memories helped (row numbers): pairwise logistic steps (Burges et al., 2005)."""
    rest = [index for index in range(shown.k) if index not in set(helpful)]
    ranker = replace(ranker, feedbacks=ranker.feedbacks + 1)
    if not helpful or not len(shown.features):
        return ranker
    better = gain(shown, ranker.weights, helpful) - gain(shown, weight_vector(STATIC), helpful)
    weights = np.array(ranker.weights)
    step = np.zeros(_N)
    for index in helpful:
        for other in rest:
            apart = shown.features[index] - shown.features[other]
            step += apart / (1.0 + math.exp(min(float(weights @ apart), 50.0)))
    stake = SETTINGS.label_stake * max(-1.0, min(1.0, better))
    return _moved(_judged(ranker, math.log1p(stake), math.log1p(-stake)), step / max(len(helpful) * len(rest), 1))


def learn_from_reward(ranker: Ranker, recalls: Sequence[LoggedRecall], reward: float) -> tuple[Ranker, float]:
    """The episode that recalled these got this reward: one bet, and a step of a Kalman filter for the weights.

    All recalls of the episode come together, since their coins have one outcome. The reward is clipped by the mean and
    deviation of those before it, and what the answer let expect before the coin fell is taken off: both lie within
    bounds that were known, so that no reward, however large, is more than one bet.

    Returns the ranker and the advantage in [-1, 1]: how much better it went than this agent could expect.
    """
    recalls = [shown for shown in recalls if len(shown.features)]
    ranker, surprise = _usual(ranker, reward)
    if not recalls:
        return ranker, surprise
    ranker, advantage = _expected(ranker, recalls, surprise)
    explored = [_explored(shown) for shown in recalls]
    if not any(chance.any() for chance in explored):
        return ranker, advantage
    ranker = _wagered(ranker, recalls, explored, advantage)
    return _filtered(ranker, recalls, explored, advantage), advantage


def gain(shown: LoggedRecall, weights: Sequence[float] | Floats, helpful: Sequence[int]) -> float:
    """nDCG@k of the logged candidates in the order of these weights, from 0 to 1."""
    order = np.argsort(-(shown.features @ np.array(weights)), kind="stable")[: shown.k].tolist()
    ideal = sum(1.0 / math.log2(place + 2) for place in range(min(len(helpful), shown.k)))
    return sum(1.0 / math.log2(order.index(index) + 2) for index in helpful if index in order) / max(ideal, 1e-9)


def _usual(ranker: Ranker, reward: float) -> tuple[Ranker, float]:
    """How unusual the reward is, from -1 to 1, and what is usual from now on."""
    n = ranker.rewards
    share, off = max(1.0 / (n + 1), 1.0 / SETTINGS.usual_rewards), reward - ranker.mean
    deviation = max(math.sqrt(ranker.variance), SETTINGS.rounding * max(1.0, abs(ranker.mean)))
    surprise = max(-1.0, min(1.0, off / (SETTINGS.widest_surprise * deviation))) if n else 0.0
    variance = (1.0 - share) * (ranker.variance + share * off * off)
    mean = ranker.mean + share * off
    return replace(ranker, feedbacks=ranker.feedbacks + 1, rewards=n + 1, mean=mean, variance=variance), surprise


def _expected(ranker: Ranker, recalls: Sequence[LoggedRecall], surprise: float) -> tuple[Ranker, float]:
    """Less what the answers' signals let expect whichever way the coins fell: of what is left a coin says more."""
    means = [shown.propensities @ shown.features / max(shown.k, 1) for shown in recalls]
    signals = np.append(np.mean(means, axis=0), 1.0)
    old = np.array(ranker.expected)
    expected = max(-SETTINGS.largest_expectation, min(SETTINGS.largest_expectation, float(old @ signals)))
    believed = _relaxed(old, np.zeros(_N + 1), _square(ranker.doubted), _GUESS, SETTINGS.expectation_forgotten)
    coefficients, covariance = _updated(*believed, signals, surprise)
    ranker = replace(ranker, expected=_short(coefficients), doubted=_short(covariance[np.tril_indices(_N + 1)]))
    return ranker, max(-1.0, min(1.0, surprise - expected))


def _explored(shown: LoggedRecall) -> Floats:
    """Shown (1) or not (0), less the probability of it, float64 [n]; 0 where no coin was thrown."""
    was = np.zeros(len(shown.features))
    was[: shown.k] = 1.0
    return np.where(_thrown(shown), was - shown.propensities, 0.0)


def _thrown(shown: LoggedRecall) -> Any:
    return (shown.propensities > 0.0) & (shown.propensities < 1.0)


def _wagered(ranker: Ranker, recalls: Sequence[LoggedRecall], explored: Sequence[Floats], advantage: float) -> Ranker:
    """Bets that the ranker's choice among the explored memories brings more than the static one's."""
    total = most = 0.0
    for shown, coin in zip(recalls, explored, strict=True):
        prefers = _chosen(shown, ranker.weights) - _chosen(shown, weight_vector(STATIC))
        total += float(coin @ prefers)
        farthest = np.maximum(shown.propensities, 1.0 - shown.propensities)
        most += float((np.abs(prefers) * farthest)[_thrown(shown)].sum())
    if most == 0.0:  # they would have shown the same
        return ranker
    total, most = total / len(recalls), most / len(recalls)
    outcome, stake = advantage * total, ranker.bets.stake(most)
    won = math.log1p(stake * outcome)
    judged = _judged(ranker, won if stake > 0.0 else 0.0, won if stake < 0.0 else 0.0)
    return replace(judged, bets=ranker.bets.after(outcome) if judged.active == ranker.active else Bets())


def _chosen(shown: LoggedRecall, weights: Sequence[float] | Floats) -> Floats:
    """Which k of the candidates these weights would show, float64 [n]; those that tie for the last places share them.

    A tie must not be decided by the order of the log, which the coin had a hand in.
    """
    scores = (shown.features @ np.array(weights)).round(9)
    last = np.partition(scores, len(scores) - shown.k)[len(scores) - shown.k] if shown.k else math.inf
    above, tied = scores > last, scores == last
    shares: Floats = above + tied * ((shown.k - above.sum()) / max(tied.sum(), 1))
    return shares


def _filtered(ranker: Ranker, recalls: Sequence[LoggedRecall], explored: Sequence[Floats], advantage: float) -> Ranker:
    """The weights after one more observation of what they explain; both they and the certainty drift back slowly."""
    pairs = zip(recalls, explored, strict=True)
    seen: Floats = SETTINGS.effect * np.mean([coin @ shown.features for shown, coin in pairs], axis=0)
    believed = _relaxed(
        np.array(ranker.weights), weight_vector(STATIC), _square(ranker.covariance), _PRIOR, SETTINGS.weights_forgotten
    )
    weights, covariance = _updated(*believed, seen, SETTINGS.widest_surprise * advantage)
    return replace(ranker, weights=_bounded(weights), covariance=_short(covariance[_LOWER]))


def _relaxed(mean: Floats, first: Floats, covariance: Floats, prior: Floats, share: float) -> tuple[Floats, Floats]:
    """A little of the way back to what was believed before any reward."""
    return (1.0 - share) * mean + share * first, (1.0 - share) * covariance + share * prior


def _updated(mean: Floats, covariance: Floats, along: Floats, seen: float) -> tuple[Floats, Floats]:
    """A Kalman filter's mean and covariance after it saw `along @ mean` with a variance of one."""
    column = covariance @ along
    trust = column / (1.0 + float(along @ column))
    return mean + trust * (seen - float(along @ mean)), covariance - np.outer(trust, column)


def _judged(ranker: Ranker, better: float, worse: float) -> Ranker:
    """Adds the logs of what the two bets brought, on it and against it, and draws the conclusion."""
    if not ranker.active:
        evidence = ranker.evidence + better
        return replace(
            ranker,
            evidence=evidence,
            active=evidence >= SETTINGS.proof and ranker.feedbacks >= SETTINGS.least_feedbacks,
            doubt=0.0,
        )
    doubt = max(0.0, ranker.doubt + worse)
    if doubt >= SETTINGS.proof:
        # Proved worse since it is in use: back into the shadow, where it has to prove itself from nothing.
        return replace(
            ranker, active=False, evidence=0.0, doubt=0.0, rewards=min(ranker.rewards, SETTINGS.usual_rewards)
        )
    return replace(ranker, evidence=ranker.evidence + better, doubt=doubt)


def _moved(ranker: Ranker, step: Floats) -> Ranker:
    length = float(np.linalg.norm(step))
    if length > SETTINGS.longest_gradient:
        step = step * (SETTINGS.longest_gradient / length)
    weights = np.array(ranker.weights)
    return replace(
        ranker,
        weights=_bounded(
            weights + SETTINGS.label_rate * step - SETTINGS.pull_to_static * (weights - weight_vector(STATIC))
        ),
    )


def _bounded(weights: Floats) -> tuple[float, ...]:
    return tuple(np.clip(weights, -SETTINGS.largest_weight, SETTINGS.largest_weight).tolist())


def _short(values: Floats) -> tuple[float, ...]:
    """Six digits: the state travels with every recall."""
    return tuple(float(f"{value:.6g}") for value in values.tolist())


def _square(lower: Sequence[float]) -> Floats:
    n = math.isqrt(2 * len(lower))
    square = np.zeros((n, n))
    square[np.tril_indices(n)] = lower
    return square + np.tril(square, -1).T
