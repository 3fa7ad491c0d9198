"""An alarm for a share above its bar: rarely false however often one looks, and soon right whenever it begins."""

import itertools
import math
import random

import pytest
from hypothesis import given, strategies as st

from learnloop_operator.statistics.alarm import Alarm, updated
from learnloop_operator.statistics.e_values import Counts

BAR, ALPHA = 0.1, 0.001


def outcomes_until(alarm: Alarm, share: float, source: random.Random, moment: int, alpha: float = ALPHA) -> int:
    """Outcomes of which `share` are bad until the alarm goes off; one per look, three looks a second."""
    for n in itertools.count(1):
        alarm = updated(alarm, Counts(1.0, float(source.random() < share)), BAR, moment + n // 3)
        if alarm.evidence >= math.log(1.0 / alpha):
            return n
    raise AssertionError("unreachable")


@pytest.mark.parametrize(("batch", "looks"), [(1, 10), (2, 8), (5, 5)])
def test_its_expectation_is_one_at_the_bar(batch: int, looks: int) -> None:
    """Exactly, over all outcomes of some looks: at every look, with what is not staked yet counted in."""
    paths = [(1.0, Alarm())]
    for moment in range(1, looks + 1):
        paths = [
            (chance * math.comb(batch, bad) * BAR**bad * (1 - BAR) ** (batch - bad), after)
            for chance, before in paths
            for bad in range(batch + 1)
            for after in [updated(before, Counts(batch, bad), BAR, moment)]
        ]
        idle = 1.0 / (moment + 1)
        total = sum(chance * (math.exp(alarm.evidence) + idle) for chance, alarm in paths)
        assert total == pytest.approx(1.0)


def test_it_is_rarely_false_for_a_share_at_the_bar_looked_at_each_second() -> None:
    source, false, rollouts, alpha = random.Random(1), 0, 300, 0.05
    for _ in range(rollouts):
        alarm = Alarm()
        for moment in range(1, 200):
            alarm = updated(alarm, Counts(3.0, float(sum(source.random() < BAR for _ in range(3)))), BAR, moment)
            if alarm.evidence >= math.log(1.0 / alpha):
                false += 1
                break
    assert false / rollouts <= alpha


@pytest.mark.parametrize(("share", "most"), [(1.0, 6), (0.5, 60)])
@pytest.mark.parametrize("quiet_seconds", [0, 600])
def test_it_goes_off_soon_whenever_the_share_rises(share: float, most: int, quiet_seconds: int) -> None:
    source = random.Random(2)
    quiet = Alarm()
    for moment in range(1, quiet_seconds + 1):
        quiet = updated(quiet, Counts(10.0, float(source.random() < 0.1)), BAR, moment)
    needed = sorted(outcomes_until(quiet, share, source, quiet_seconds + 1) for _ in range(21))
    assert needed[10] <= most * (2 if quiet_seconds else 1)


def test_it_speaks_of_the_outcomes_since_the_trouble_began() -> None:
    alarm = Alarm()
    for moment in range(1, 100):
        alarm = updated(alarm, Counts(10.0, 0.0), BAR, moment)
    for moment in range(100, 103):
        alarm = updated(alarm, Counts(5.0, 5.0), BAR, moment)
    assert alarm.recent.total == 15.0
    assert alarm.recent.n <= 25.0


@given(
    n=st.floats(allow_nan=True, allow_infinity=True), bad=st.floats(allow_nan=True, allow_infinity=True),
    moment=st.integers(1, 10**6),
)  # fmt: skip
def test_an_impossible_batch_changes_nothing(n: float, bad: float, moment: int) -> None:
    alarm = updated(Alarm(), Counts(5.0, 1.0), BAR, 1)
    batch = Counts(n, bad)
    after = updated(alarm, batch, BAR, moment)
    assert after == alarm or (batch.possible and n > 0.0)
    assert not math.isnan(after.evidence)


def test_a_moment_pays_its_stake_once() -> None:
    once = updated(Alarm(), Counts(1.0, 0.0), BAR, 7)
    again = updated(once, Counts(1.0, 0.0), BAR, 7)
    earlier = updated(once, Counts(1.0, 0.0), BAR, 3)
    assert again == earlier
    assert again.evidence < once.evidence
