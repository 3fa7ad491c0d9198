import itertools
import random
from types import SimpleNamespace

from hypothesis import given, strategies as st

from learnloop_api.wire.routing import Arm, RoutingTable
from learnloop_serving.arm_choice import CreditBank, choose_arm
from testing.servers.policy_servers import CANARY, OTHER, STABLE, table

weights = st.integers(0, 100)


def canary(weight: int, revision: str = CANARY) -> Arm:
    return Arm(revision=revision, role="canary", weight=weight, url="http://c")


@given(st.integers(0, 2**32), weights, st.lists(st.integers(0, 9), max_size=600))
def test_any_number_of_servers_together_never_over_expose_the_canary(seed: int, weight: int, who: list[int]) -> None:
    source = random.Random(seed)
    banks = [CreditBank(source) for _ in range(10)]
    exposed = 0
    for opened, server in enumerate(who, start=1):
        exposed += banks[server].draw([canary(weight)]) is not None
        assert exposed * 100 <= weight * opened


@given(st.integers(0, 2**32), st.lists(st.tuples(weights, st.integers(0, 40)), max_size=12))
def test_the_bound_holds_anew_from_every_change_of_weight(seed: int, steps: list[tuple[int, int]]) -> None:
    bank = CreditBank(random.Random(seed))
    previous: int | None = None
    exposed = opened = 0
    for weight, count in steps:
        if weight != previous and count:
            exposed, opened, previous = 0, 0, weight
        for _ in range(count):
            opened += 1
            exposed += bank.draw([canary(weight)]) is not None
            assert exposed * 100 <= weight * opened


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_weight_100_sends_every_episode_to_the_canary(seed: int, count: int) -> None:
    bank = CreditBank(random.Random(seed))
    assert all(bank.draw([canary(100)]) is not None for _ in range(count))


def test_a_withdrawn_canary_that_comes_back_starts_with_nothing() -> None:
    bank = CreditBank(SimpleNamespace(random=lambda: 0.999))
    for _ in range(100):
        bank.draw([canary(50)])
    bank.draw([])
    bank._source = SimpleNamespace(random=lambda: 0.0)
    assert bank.draw([canary(50)]) is None


def test_in_the_long_run_the_canary_gets_its_share() -> None:
    bank = CreditBank(random.Random(7))
    for weight in (10, 25, 50, 90):
        share = sum(bank.draw([canary(weight)]) is not None for _ in range(20_000)) / 20_000
        assert weight / 100 - 0.002 < share <= weight / 100


def test_the_arms_of_an_experiment_get_their_shares_even_when_little_is_left_for_stable() -> None:
    bank, arms = CreditBank(random.Random(4)), [canary(48), canary(47, OTHER)]
    drawn = [bank.draw(arms) for _ in range(20_000)]
    shares = [sum(arm is one for arm in drawn) / len(drawn) for one in arms]
    assert abs(shares[0] - 0.48) < 0.003
    assert abs(shares[1] - 0.47) < 0.003


def test_the_spacing_cannot_be_foretold() -> None:
    bank = CreditBank(random.Random(3))
    turns = [turn for turn in range(5_000) if bank.draw([canary(10)])]
    gaps = {later - earlier for earlier, later in itertools.pairwise(turns)}
    assert len(gaps) > 10


@given(st.integers(0, 2**32), st.integers(0, 50), st.integers(0, 50), st.integers(0, 500))
def test_several_canaries_each_keep_their_own_bound(seed: int, one: int, two: int, count: int) -> None:
    bank = CreditBank(random.Random(seed))
    counts = {CANARY: 0, OTHER: 0}
    for opened in range(1, count + 1):
        if arm := bank.draw([canary(one), canary(two, OTHER)]):
            counts[arm.revision] += 1
        assert counts[CANARY] * 100 <= one * opened
        assert counts[OTHER] * 100 <= two * opened


def _routing(weight: int) -> RoutingTable:
    text = table((STABLE, "stable", 100 - weight), (CANARY, "canary", weight))
    return RoutingTable.model_validate_json(text)


def _everybody(arm: Arm) -> bool:
    return True


def test_who_asks_for_stable_gets_stable() -> None:
    arm = choose_arm(_routing(100), CreditBank(), stable_only=True, reached=_everybody)
    assert arm.revision == STABLE


def test_a_table_without_arms_gives_none() -> None:
    empty = RoutingTable(model_deployment="cart", generation=1, arms=[])
    assert choose_arm(empty, CreditBank(), stable_only=False, reached=_everybody) is None


def test_a_canary_that_nobody_reached_yet_earns_nothing_that_is_paid_back_later() -> None:
    bank = CreditBank(random.Random(1))
    before = [choose_arm(_routing(50), bank, stable_only=False, reached=lambda arm: False) for _ in range(99)]
    assert {arm.revision for arm in before if arm} == {STABLE}
    after = [choose_arm(_routing(50), bank, stable_only=False, reached=_everybody) for _ in range(100)]
    for count in range(1, 101):
        assert 2 * sum(arm is not None and arm.revision == CANARY for arm in after[:count]) <= count
    assert any(arm is not None and arm.revision == CANARY for arm in after)
