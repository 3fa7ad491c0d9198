"""What the bench of failovers counts as two decisions about one generation."""

from bench.operator.witness import Landed, twice_decided, twice_decided_of_each


def test_who_takes_over_may_complete_a_generation_and_goes_on_alone() -> None:
    landed = [Landed(1, "a", 1, "x"), Landed(2, "b", 1, "x"), Landed(3, "b", 1, "y"), Landed(4, "b", 2, "z")]
    assert twice_decided(landed) == set()


def test_a_process_that_comes_back_is_counted_by_the_order_of_the_api_server() -> None:
    landed = [Landed(1, "a", 1, "x"), Landed(9, "a", 2, "x"), Landed(5, "b", 2, "x"), Landed(12, "b", 3, "x")]
    assert twice_decided(landed) == {2, 3}


def test_two_processes_that_do_not_decide_alike_about_one_generation_are_counted() -> None:
    assert twice_decided([Landed(1, "a", 1, "x"), Landed(2, "b", 1, "y")]) == {1}
    assert twice_decided([Landed(1, "a", 1, "x"), Landed(2, "b", 2, "y")]) == set()


def test_of_several_objects_each_is_judged_by_itself() -> None:
    moved = [Landed(1, "a", 1, "x", "ns/one"), Landed(2, "b", 1, "x", "ns/one"), Landed(3, "a", 1, "x", "ns/two")]
    assert twice_decided_of_each(moved) == set()
    assert twice_decided_of_each([*moved, Landed(4, "a", 1, "x", "ns/one")]) == {("ns/one", 1)}
