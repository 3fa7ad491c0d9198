"""Which memories go under a budget, for any memories and any budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.lifecycle.forgetting import Held, above

MEMORY = st.tuples(st.floats(0, 10), st.integers(1, 500), st.booleans())
BUDGET = st.builds(MemoryBudget, memories=st.none() | st.integers(0, 12), bytes=st.none() | st.integers(1, 3000))


def held(memories: list[tuple[float, int, bool]]) -> Held:
    pinned = [size for _, size, is_pinned in memories if is_pinned]
    return Held(len(memories), sum(size for _, size, _ in memories), len(pinned), sum(pinned))


@given(st.lists(MEMORY, max_size=20), BUDGET)
def test_what_stays_is_within_every_limit_unless_it_is_pinned(
    memories: list[tuple[float, int, bool]], budget: MemoryBudget
) -> None:
    values = np.array([np.inf if pinned else value for value, _, pinned in memories])
    sizes = np.array([float(size) for _, size, _ in memories])
    gone = above(values, sizes, budget)
    assert not np.isinf(values[gone]).any(), "what is pinned stays"
    assert (np.diff(values[gone]) >= 0).all(), "the least valuable first"
    assert len(set(gone.tolist())) == len(gone)
    left = held([item for index, item in enumerate(memories) if index not in set(gone.tolist())])
    for name in (MemoryBudget(memories=budget.memories), MemoryBudget(bytes=budget.bytes), budget):
        if not left.pinned_above(budget):
            assert not left.exceeds(name)
    if not held(memories).exceeds(budget):
        assert gone.size == 0, "nothing goes that need not"


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.integers(0, 20))
def test_the_most_valuable_stay(values: list[float], most: int) -> None:
    column = np.array(values)
    gone = above(column, np.ones(len(values)), MemoryBudget(memories=most))
    assert len(gone) == max(len(values) - most, 0)
    kept = np.delete(column, gone)
    assert not gone.size or not kept.size or column[gone].max() <= kept.min()


@given(BUDGET, BUDGET, BUDGET)
def test_of_any_three_budgets_the_smallest_limits_hold_whoever_gives_them(
    put: MemoryBudget, told: MemoryBudget, everybodys: MemoryBudget
) -> None:
    holds = put.within(told.within(everybodys))
    assert holds == everybodys.within(put).within(told)
    for name in ("memories", "bytes"):
        given_ones = [
            limit for limit in (getattr(budget, name) for budget in (put, told, everybodys)) if limit is not None
        ]
        assert getattr(holds, name) == min(given_ones, default=None)
