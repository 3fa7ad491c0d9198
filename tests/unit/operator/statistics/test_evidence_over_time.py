"""The two e-processes of a rollout: valid under peeking, strong enough to be useful, unmoved by bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from learnloop_operator.statistics.canary_against_stable import (
    CREDIT,
    Claim,
    LookMemory,
    Pair,
    bars,
    bet,
    chance,
    feared,
    look,
    needed,
    proven,
)
from learnloop_operator.statistics.e_values import Counts, log_e, nearest

BAR = bars(0.01)
DROP = 0.05
START = LookMemory(Pair())
rate = st.floats(0.01, 0.99)
size = st.floats(0.0, 500.0)


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    n = draw(size)
    return Counts(n, n * draw(st.floats(0.0, 1.0)))


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    return Pair(draw(counts()), draw(counts()))


def episodes(source: np.random.Generator, n: int, mean: float) -> Counts:
    return Counts(n, int(source.binomial(n, mean)))


def stream(seed: int, canary: float, stable: float, looks: int, drift: float = 0.0) -> list[LookMemory]:
    """The memory after each of `looks` seconds at 10 % of 40 episodes a second."""
    source, total, memory, path = np.random.default_rng(seed), Pair(), START, []
    for second in range(looks):
        shift = drift * math.sin(second / 20)
        drawn = int(source.binomial(40, 0.1))
        fresh = Pair(episodes(source, drawn, canary + shift), episodes(source, 40 - drawn, stable + shift))
        total = total.plus(fresh)
        memory = look(memory, total, DROP, BAR)
        path.append(memory)
    return path


def exact_mean(p_a: float, p_b: float, m_a: float, m_b: float, margin: float, n: int = 3, m: int = 4) -> float:
    """The e-value's expectation over all outcomes of a batch of n and m episodes."""

    def mass(k: int, size: int, mean: float) -> float:
        return math.comb(size, k) * mean**k * (1 - mean) ** (size - k)

    return sum(
        mass(i, n, m_a) * mass(j, m, m_b) * math.exp(log_e(Counts(n, i), Counts(m, j), p_a, p_b, margin))
        for i in range(n + 1)
        for j in range(m + 1)
    )


@settings(max_examples=2 * settings().max_examples)
@given(rate, rate, rate, rate, st.floats(-0.5, 0.5))
def test_the_expected_e_value_is_at_most_one_everywhere_in_the_null(p_a, p_b, m_b, below, margin):
    m_a = below * min(1.0, max(0.0, m_b + margin))
    if m_a <= m_b + margin:
        assert exact_mean(p_a, p_b, m_a, m_b, margin) <= 1 + 1e-9


def test_the_bound_is_reached_on_the_edge_of_the_null() -> None:
    assert exact_mean(0.8, 0.5, 0.65, 0.65, 0.0, 3, 3) == pytest.approx(1.0)


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), rate, rate)
def test_fractions_of_a_success_never_claim_more_than_the_outcomes_themselves(outcomes, p_a, p_b):
    """The sum alone bounds from below the e-value that knows each outcome."""
    n, none = float(len(outcomes)), Counts(5.0, 0.0)
    q, _ = nearest(n, none.n, p_a, p_b, 0.0)
    stable = log_e(Counts(n, 0.0), none, p_a, p_b, 0.0) - n * math.log((1 - p_a) / (1 - q))
    claimed = log_e(Counts(n, sum(outcomes)), none, p_a, p_b, 0.0) - stable
    exact = sum(math.log(1 + (x - q) * (p_a - q) / (q * (1 - q))) for x in outcomes)
    assert p_a <= p_b or claimed <= exact + 1e-9


@settings(max_examples=2 * settings().max_examples)
@given(pairs(), pairs())
def test_a_batch_moves_the_evidence_by_a_finite_step_and_wealth_stays_positive(first: Pair, second: Pair) -> None:
    memory = bet(bet(START, first, DROP, BAR), second, DROP, BAR)
    for value in (memory.worse, memory.fine):
        assert math.isfinite(value)
        assert math.exp(value / 10) > 0
    assert memory.fine <= BAR.fine + CREDIT
    assert 0 <= chance(memory.worse) <= 1


@settings(max_examples=2 * settings().max_examples)
@given(st.permutations([(4, 3), (4, 1), (2, 2), (6, 5)]))
def test_the_order_of_episodes_within_a_batch_does_not_matter_and_its_sums_do(order: list[tuple[int, int]]) -> None:
    total = Counts()
    for n, successes in order:
        total = total.plus(Counts(n, successes))
    assert bet(START, Pair(total, Counts(90, 80)), DROP, BAR) == bet(
        START, Pair(Counts(16, 11), Counts(90, 80)), DROP, BAR
    )


@settings(max_examples=2 * settings().max_examples)
@given(pairs())
def test_a_look_without_news_leaves_the_memory_as_it_is(pair: Pair) -> None:
    memory = look(look(START, pair, DROP, BAR), pair, DROP, BAR)
    assert look(memory, pair, DROP, BAR) == memory


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_impossible_counters_leave_the_memory_unchanged(bad: float) -> None:
    memory = stream(1, 0.9, 0.9, 20)[-1]
    assert memory.counted is not None
    good = Counts(500, 400)
    for pair in (Pair(Counts(bad, 3), good), Pair(good, Counts(900, bad)), Pair(Counts(900, 901), good), Pair()):
        after = look(memory, pair, DROP, BAR)
        assert (after.worse, after.fine, after.judged) == (memory.worse, memory.fine, memory.judged)


def test_more_successes_than_new_episodes_wait_for_a_look_that_makes_sense() -> None:
    memory = look(START, Pair(Counts(50, 10), Counts(500, 400)), DROP, BAR)
    assert look(memory, Pair(Counts(60, 40), Counts(600, 480)), DROP, BAR) == memory


def test_a_fall_changes_nothing_and_what_comes_after_it_is_bet_on_once() -> None:
    memory = stream(2, 0.6, 0.9, 20)[-1]
    after = look(memory, Pair(Counts(3, 1), Counts(30, 27)), DROP, BAR)
    assert after == memory
    assert look(after, memory.counted.plus(Pair(Counts(20, 4), Counts(180, 170))), DROP, BAR).worse > memory.worse


def test_a_counter_that_seems_to_fall_by_an_extrapolation_is_not_a_reset() -> None:
    memory = look(START, Pair(Counts(50, 40), Counts(450, 360)), DROP, BAR)
    assert look(memory, Pair(Counts(49.3, 39.5), Counts(449.2, 359)), DROP, BAR) == memory


def test_episodes_before_the_first_look_are_not_compared() -> None:
    alone = Pair(Counts(0, 0), Counts(5000, 10))
    memory = look(LookMemory(), alone, DROP, BAR)
    assert memory == LookMemory(counted=alone)


def test_identical_arms_are_rarely_called_worse_although_everybody_peeks() -> None:
    fired = sum(any(at.worse >= BAR.worse for at in stream(seed, 0.8, 0.8, 80)) for seed in range(120))
    assert fired <= 4  # at most 1 % by Ville: 5 or more of 120 have a chance below 1 %


def test_a_rate_that_swings_with_the_time_of_day_fools_neither_test() -> None:
    ends = [stream(seed, 0.7, 0.7, 120, drift=0.25) for seed in range(40)]
    assert sum(any(at.worse >= BAR.worse for at in path) for path in ends) <= 2


def test_a_canary_at_the_tolerated_drop_is_rarely_called_fine() -> None:
    fired = sum(any(at.fine >= BAR.fine for at in stream(seed, 0.75, 0.8, 80)) for seed in range(120))
    assert fired <= 4


def test_a_ten_point_drop_is_found_within_a_median_of_300_canary_episodes() -> None:
    lengths = []
    for seed in range(41):
        path = stream(seed, 0.7, 0.8, 300)
        lengths.append(next((at.judged.canary.n for at in path if at.worse >= BAR.worse), math.inf))
    assert sorted(lengths)[20] <= 300
    assert sum(n < math.inf for n in lengths) >= 39


@pytest.mark.parametrize("base", [0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
def test_a_ten_point_drop_is_proven_within_300_canary_episodes_at_any_base_rate_where_luck_plays_no_part(base):
    memory, batch = START, Pair(Counts(10.0, 10.0 * (base - 0.1)), Counts(90.0, 90.0 * base))
    while memory.worse < BAR.worse:
        memory = bet(memory, batch, DROP, BAR)
    assert memory.judged.canary.n <= 300


@pytest.mark.parametrize("max_drop", [0.01, 0.05, 0.6])
def test_whatever_drop_is_feared_an_equal_canary_gains_nothing_on_average(max_drop: float) -> None:
    """One batch in all its outcomes, after a past that says anything."""
    for past in (Pair(), Pair(Counts(40, 30), Counts(300, 290)), Pair(Counts(40, 40), Counts(300, 300))):
        canary, stable = feared(past, max_drop)
        for mean in (0.05, 0.5, 0.95):
            assert exact_mean(stable, canary, mean, mean, 0.0) <= 1 + 1e-9


def test_an_equal_canary_is_called_fine_in_the_end_and_not_earlier_than_foretold_by_much() -> None:
    path = stream(5, 0.9, 0.9, 600)
    early = needed(path[40], DROP, BAR, 0.1)
    first = next(at for at in path if at.fine >= BAR.fine)
    assert needed(first, DROP, BAR, 0.1) == 0
    assert 0.2 <= (first.judged.canary.n - path[40].judged.canary.n) / early <= 5


def test_a_canary_that_turns_bad_late_loses_its_credit_and_is_called_worse() -> None:
    source, total, memory = np.random.default_rng(3), Pair(), START
    for second in range(1200):
        mean = 0.9 if second < 600 else 0.5
        total = total.plus(Pair(episodes(source, 4, mean), episodes(source, 36, 0.9)))
        memory = look(memory, total, DROP, BAR)
    assert memory.worse >= BAR.worse
    assert memory.fine < BAR.fine


@pytest.mark.parametrize(
    ("worse", "fine", "claim"), [(9.0, 0.0, "worse"), (0.0, 9.0, "fine"), (9.0, 9.0, "fine"), (4.0, 4.0, "undecided")]
)
def test_a_drop_that_is_proven_tolerable_is_no_reason_to_roll_back(worse: float, fine: float, claim: Claim) -> None:
    assert proven(LookMemory(worse=worse, fine=fine), BAR) == claim
