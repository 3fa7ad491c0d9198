"""Years of rollovers as a state machine: whoever reads the bundle in time is never refused, whatever is late."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.core.certificates.leaves import Leaf, reason_to_renew
from learnloop_operator.core.certificates.rollover import Authority, Pace, roll_over

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LIFE, LEAF, ANNOUNCEMENT = 90 * DAY, 7 * DAY, DAY
PACE = Pace(announcement=ANNOUNCEMENT, longest_leaf=LEAF)


@dataclass
class World:
    """An installation: its Secret of authorities, one part's certificate, and one that outlives its renewals."""

    authorities: tuple[Authority, ...] = ()
    leaf: Leaf | None = None
    made: int = 0
    bundles: tuple[tuple[datetime, frozenset[str]], ...] = ()

    def look(self, now: datetime, *, asked: bool = False) -> None:
        """What the keeper does in one look."""
        plan = roll_over(now, self.authorities, PACE, asked=asked)
        self.authorities = tuple(one for one in self.authorities if one.key_id in plan.kept)
        if plan.make:
            self.made += 1
            fresh = Authority(key_id=f"a{self.made}", begins=now, ends=now + LIFE, announced=now)
            self.authorities = (*self.authorities, fresh)
        signer = next(one for one in self.authorities if one.key_id == (plan.signer or f"a{self.made}"))
        if reason_to_renew(now, self.leaf, frozenset({"x"}), signer.key_id):
            self.leaf = Leaf(
                begins=now,
                ends=min(now + LEAF, signer.ends),
                names=frozenset({"x"}),
                signer_id=signer.key_id,
                fits=True,
            )
        self.bundles = (*self.bundles, (now, frozenset(one.key_id for one in self.authorities)))

    def bundle_read_at(self, when: datetime) -> frozenset[str]:
        """What a client that read then trusts."""
        return [bundle for at, bundle in self.bundles if at <= when][-1]


@given(
    st.lists(st.integers(min_value=1, max_value=24 * 20), min_size=40, max_size=120),
    st.sets(st.integers(min_value=0, max_value=119), max_size=4),
)
def test_who_read_the_bundle_within_the_announcement_trusts_what_is_shown(pauses: list[int], asked: set[int]) -> None:
    """Looks come at any time, up to twenty days late; people ask for rotations at any of them."""
    world, now = World(), START
    for number, pause in enumerate(pauses):
        world.look(now, asked=number in asked)
        assert world.leaf is not None
        assert world.leaf.ends > now
        stale = world.bundle_read_at(max(START, now - ANNOUNCEMENT + timedelta(seconds=1)))
        alone = len(world.bundle_read_at(now)) == 1 and not stale & world.bundle_read_at(now)
        assert world.leaf.signer_id in stale or alone, "only where everything had ended before is nobody told in time"
        now += pause * HOUR


def test_a_decade_of_hourly_looks_never_refuses_anybody_and_never_piles_up() -> None:
    world, now, most = World(), START, 0
    while now < START + 3650 * DAY:
        world.look(now)
        assert world.leaf is not None
        assert world.leaf.signer_id in world.bundle_read_at(max(START, now - ANNOUNCEMENT + HOUR))
        assert world.leaf.ends - now >= LEAF / 3 - HOUR
        most = max(most, len(world.authorities))
        world.bundles = world.bundles[-48:]
        now += 6 * HOUR
    assert most == 2
    assert 58 <= world.made <= 62, "one in sixty days, two thirds of ninety"


def test_the_first_authority_signs_at_once() -> None:
    assert roll_over(START, (), PACE).make
    first = Authority(key_id="a", begins=START, ends=START + LIFE, announced=START)
    assert roll_over(START, (first,), PACE).signer == "a"


def test_a_new_authority_signs_only_when_it_is_known() -> None:
    old = Authority(key_id="old", begins=START, ends=START + LIFE, announced=START)
    now = START + 61 * DAY
    new = Authority(key_id="new", begins=now, ends=now + LIFE, announced=now)
    assert roll_over(now + ANNOUNCEMENT - HOUR, (old, new), PACE).signer == "old"
    assert roll_over(now + ANNOUNCEMENT, (old, new), PACE).signer == "new"


def test_the_old_authority_stays_until_all_it_signed_has_ended() -> None:
    old = Authority(key_id="old", begins=START, ends=START + LIFE, announced=START)
    new = Authority(key_id="new", begins=START + DAY, ends=START + DAY + LIFE, announced=START + DAY)
    over = START + DAY + ANNOUNCEMENT + LEAF
    assert roll_over(over - HOUR, (old, new), PACE).kept == ("new", "old")
    assert roll_over(over, (old, new), PACE).kept == ("new",)


def test_an_authority_that_ended_is_dropped_and_replaced() -> None:
    gone = Authority(key_id="gone", begins=START, ends=START + LIFE, announced=START)
    plan = roll_over(START + LIFE, (gone,), PACE)
    assert plan.make
    assert plan.kept == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"fits": False}, "its key is not beside it"),
        ({"names": frozenset({"y"})}, "it is for other names"),
        ({"signer_id": "b"}, "another authority signs now"),
        ({"ends": START - HOUR}, "it ended at 2025-12-31 23:00"),
        ({"begins": START - 5 * DAY, "ends": START + 2 * DAY}, "two thirds of its life are over"),
    ],
)
def test_a_certificate_is_made_anew_for_a_reason(change: dict[str, object], why: str) -> None:
    usual = {"begins": START, "ends": START + LEAF, "names": frozenset({"x"}), "signer_id": "a", "fits": True}
    assert reason_to_renew(START, Leaf(**(usual | change)), frozenset({"x"}), "a") == why  # type: ignore[arg-type]
    assert reason_to_renew(START, None, frozenset({"x"}), "a") == "there is none"
