"""The ranker learns what helps, is used only when it has proved it, and is taken back when it is worse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_memory.memory.ranker import (
    EXPLORED,
    Ranker,
    Shown,
    credits,
    explore,
    gain,
    learn_from_labels,
    learn_from_reward,
    utility,
)
from learnloop_memory.memory.signals import SIGNALS, STATIC, weight_vector


def recalled(rng: np.random.Generator, k: int = 10, n: int = 30, weights: Any = None) -> Shown:
    """A recall of random candidates, in the order the given weights put them."""
    features = rng.standard_normal((n, len(SIGNALS)))
    order = np.argsort(-(features @ (weight_vector(STATIC) if weights is None else weights)))
    return Shown(features[order], k, np.array([1.0] * k + [0.0] * (n - k)))


def helpful(shown: Shown, truth: Any) -> list[int]:
    """The three of the shown that really help most."""
    return [int(index) for index in np.argsort(-(shown.features[: shown.k] @ truth))[:3]]


def test_it_finds_the_signal_that_helps_and_proves_it() -> None:
    rng = np.random.default_rng(1)
    truth = weight_vector({"recency": 1.5, "utility": 1.0})
    ranker = Ranker()
    for _ in range(500):
        shown = recalled(rng, weights=ranker.vector())
        ranker = learn_from_labels(ranker, shown, helpful(shown, truth))
    assert ranker.active
    fresh = [recalled(rng) for _ in range(200)]
    learned, static = (
        np.mean([gain(shown, weights, helpful(shown, truth)) for shown in fresh])
        for weights in (ranker.vector(), weight_vector(STATIC))
    )
    assert learned > 1.1 * static


@pytest.mark.parametrize("seed", range(20))
def test_feedback_without_meaning_never_puts_it_in_use(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranker = Ranker()
    for _ in range(300):
        shown = recalled(rng)
        ranker = learn_from_labels(ranker, shown, [int(index) for index in rng.choice(10, 2, replace=False)])
        ranker, _ = learn_from_reward(ranker, shown, float(rng.normal()))
        assert not ranker.active


def test_what_helped_may_change_and_it_goes_back_into_the_shadow() -> None:
    rng = np.random.default_rng(4)
    ranker = Ranker(weights=tuple(-weight_vector(STATIC)), active=True, feedbacks=500, evidence=9.0)
    seen = []
    for _ in range(60):
        shown = recalled(rng)
        ranker = learn_from_labels(ranker, shown, [0, 1, 2])
        seen.append(ranker.active)
    assert seen[0]
    assert not all(seen), "static was right all along, and that was noticed"


def test_rewards_alone_teach_what_exploring_brought() -> None:
    rng = np.random.default_rng(9)
    truth = weight_vector({"importance": 1.0})
    ranker = Ranker()
    for _ in range(3000):
        ranked = recalled(rng)
        order, chances = explore(30, 10, rng.random(), rng.random())
        shown = Shown(ranked.features[order], 10, np.array(chances))
        reward = float((shown.features[:10] @ truth).mean() + 0.1 * rng.normal())
        ranker, _ = learn_from_reward(ranker, shown, reward)
    moved = np.array(ranker.weights) - weight_vector(STATIC)
    assert int(np.argmax(moved)) == SIGNALS.index("importance")


@given(st.integers(0, 40), st.integers(1, 20), st.floats(0, 0.999), st.floats(0, 0.999))
def test_exploring_shows_each_memory_once_with_the_probability_it_says(
    n: int, k: int, draw: float, pick: float
) -> None:
    order, chances = explore(n, k, draw, pick)
    assert sorted(order) == list(range(n))
    assert len(chances) == n
    assert sum(chances) == pytest.approx(min(n, k))
    assert order[: k - 1] == list(range(min(k - 1, n)))
    if draw >= EXPLORED:
        assert order == list(range(n))


@given(st.integers(1, 50), st.floats(-1, 1))
def test_credit_adds_up_and_the_first_gets_most(k: int, advantage: float) -> None:
    shares = credits(k, advantage)
    assert sum(shares) == pytest.approx(advantage)
    assert abs(shares[0]) == max(abs(share) for share in shares)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_utility_stays_within_one(helped: float, hurt: float) -> None:
    assert -1 <= utility(helped, hurt) <= 1
