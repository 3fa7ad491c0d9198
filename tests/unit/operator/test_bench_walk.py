"""The walk behind `make bench-statistics`, in graphs of numbers."""

from collections.abc import Callable, Iterator

from testing.state_walk.breadth_first import TWINS, Graph, WalkResult, walk


def graph(
    nexts: Callable[[int], Iterator[tuple[str, bool, int]]], key: Callable[[int], tuple[object, ...]], last: int
) -> Graph[int]:
    def judge(result: WalkResult, _: int, observation: str, after: int) -> None:
        result.passes += after == last
        result.broken += ["above the last"] if after > last else []

    return Graph("numbers", 0, nexts, key, lambda node: node == last, judge, lambda node: node + 1)


def upwards(node: int) -> Iterator[tuple[str, bool, int]]:
    yield "works", True, min(node + 1, 9)
    yield "fails", False, node


def test_a_walk_visits_every_state_once_judges_every_transition_and_ends_or_says_that_it_was_cut_off() -> None:
    result = walk(graph(upwards, lambda node: (node,), 9), 1_000)
    assert (result.nodes, result.exhausted, result.without_end, result.passes) == (10, True, 0, 3)
    assert walk(graph(upwards, lambda node: (node,), 8), 1_000).broken
    cut = walk(graph(upwards, lambda node: (node,), 9), 10)
    assert (cut.transitions, cut.exhausted) == (10, False)


def test_a_state_from_which_nothing_leads_on_is_without_an_end() -> None:
    def stays(node: int) -> Iterator[tuple[str, bool, int]]:
        yield "works", True, node
        yield "falls", False, -(10**6)

    result = walk(graph(stays, lambda node: (node,), 5), 1_000)
    assert result.without_end == 1


def test_slow_progress_within_a_key_leads_to_an_end_all_the_same() -> None:
    result = walk(graph(upwards, lambda node: (node // 4,), 9), 1_000)
    assert (result.nodes, result.without_end) == (1, 0)


def test_what_a_key_that_leaves_too_much_out_hides_is_found_by_twins_and_counted() -> None:
    def many(node: int) -> Iterator[tuple[str, bool, int]]:
        """All count as one but 1,000, to which the first does not lead."""
        yield from (("works", True, number) for number in range(1, TWINS + 2) if not node)
        if node:
            yield "works", True, 1_000

    result = walk(graph(many, lambda node: (node == 1_000,), 1_000), 10 * TWINS)
    assert (result.nodes, result.twins, result.by_twins, result.exhausted) == (2, 1, 1, True)
