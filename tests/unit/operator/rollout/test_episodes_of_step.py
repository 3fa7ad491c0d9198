"""A step counts the episodes that ended in it, whatever the scrapes and the looks do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from learnloop_operator.core.times import stamp
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.gather_evidence import arm_evidence
from learnloop_operator.rollout.evidence import ArmEvidence
from learnloop_operator.rollout.judging.watched_arms import begun, settled
from learnloop_operator.rollout.state.rollout_state import State

BEGAN = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=30.7)
MOMENTS = st.lists(st.floats(0, 60), max_size=60)


@given(ends=MOMENTS, scrapes=MOMENTS, looks=MOMENTS)
def test_no_look_ever_counts_an_episode_that_ended_before_the_step(ends, scrapes, looks):
    """Seconds since midnight; the step begins at 30.7."""
    state = State(weight=25, step=1, step_started_at=stamp(BEGAN), step_base=None)
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    for look in sorted(second for second in looks if second >= 30.7):
        scrape = max((second for second in scrapes if second <= look), default=None)
        evidence = None
        if scrape is not None:
            evidence = ArmEvidence(sum(end <= scrape for end in ends), scraped_at=midnight + timedelta(seconds=scrape))
        state = settled(state, evidence)
        if state.step_base is not None:
            in_step = sum(30.7 <= end <= look for end in ends)
            assert evidence.episodes - state.step_base <= in_step


def test_the_first_sample_of_the_step_gives_its_base_and_later_ones_count() -> None:
    waiting = State(weight=25, step=1, step_started_at=stamp(BEGAN), step_base=None)
    assert settled(waiting, ArmEvidence(7, scraped_at=BEGAN)).step_base is None
    first = settled(waiting, ArmEvidence(9, scraped_at=BEGAN + timedelta(seconds=1)))
    assert first.step_base == 9
    assert settled(first, ArmEvidence(12, scraped_at=BEGAN + timedelta(seconds=3))).step_base == 9


def test_pods_that_leave_take_the_base_along() -> None:
    assert settled(State(weight=25, step_base=9), ArmEvidence(4)).step_base == 4


def test_a_canary_that_never_had_a_weight_counts_from_its_first_episode() -> None:
    fresh = State(weight=0, step=0, step_base=0)
    assert begun(fresh) == 0
    assert begun(replace(fresh, weight=10)) is None


def test_prometheus_says_when_the_arm_was_scraped() -> None:
    evidence = arm_evidence(
        [
            Sample({"revision": "a", "learnloop_signal": "ended", "outcome": "success"}, 3.0),
            Sample({"revision": "a", "learnloop_signal": "scraped"}, BEGAN.timestamp()),
        ]
    )
    assert evidence["a"].scraped_at == BEGAN
