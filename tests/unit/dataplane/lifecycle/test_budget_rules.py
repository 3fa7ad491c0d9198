"""Which memories go under a budget, for any memories and any budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.lifecycle.forgetting import Held, above
from learnloop_dataplane.recall.memory_types import CODES

KINDS = st.sampled_from(sorted(CODES))
MEMORY = st.tuples(st.floats(0, 10), st.integers(1, 500), KINDS, st.booleans())
LIMIT = st.none() | st.integers(0, 12)
BUDGET = st.builds(
    MemoryBudget,
    memories=LIMIT,
    bytes=st.none() | st.integers(1, 3000),
    per_type=st.dictionaries(KINDS, st.integers(0, 6), max_size=4),
)


def held(memories: list[tuple[float, int, str, bool]]) -> Held:
    found = Held()
    for _, size, kind, pinned in memories:
        found.memories += 1
        found.bytes += size
        found.per_type[kind] = found.per_type.get(kind, 0) + 1
        if pinned:
            found.pinned += 1
            found.pinned_bytes += size
            found.pinned_per_type[kind] = found.pinned_per_type.get(kind, 0) + 1
    return found


@given(st.lists(MEMORY, max_size=20), BUDGET)
def test_what_stays_is_within_every_limit_unless_it_is_pinned(
    memories: list[tuple[float, int, str, bool]], budget: MemoryBudget
) -> None:
    values = np.array([np.inf if pinned else value for value, _, _, pinned in memories])
    sizes = np.array([float(size) for _, size, _, _ in memories])
    kinds = np.array([CODES[kind] for _, _, kind, _ in memories], dtype=np.intp)
    gone = above(values, sizes, kinds, budget)
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
def test_of_one_type_the_most_valuable_stay(values: list[float], most: int) -> None:
    column = np.array(values)
    same = np.full(len(values), CODES["semantic"], dtype=np.intp)
    gone = above(column, np.ones(len(values)), same, MemoryBudget(memories=most))
    assert len(gone) == max(len(values) - most, 0)
    kept = np.delete(column, gone)
    assert not gone.size or not kept.size or column[gone].max() <= kept.min()


def test_the_smaller_limit_holds() -> None:
    own = MemoryBudget(memories=100, per_type={"episodic": 10})
    limit = MemoryBudget(memories=50, bytes=1000, per_type={"episodic": 20, "working": 5})
    both = MemoryBudget(memories=50, bytes=1000, per_type={"episodic": 10, "working": 5})
    assert own.within(limit) == limit.within(own) == both


@given(BUDGET, BUDGET, BUDGET)
def test_of_any_three_budgets_the_smallest_limits_hold_whoever_gives_them(
    put: MemoryBudget, told: MemoryBudget, everybodys: MemoryBudget
) -> None:
    holds = put.within(told.within(everybodys))
    assert holds == everybodys.within(put).within(told)
    three = (put, told, everybodys)
    for name in ("memories", "bytes"):
        given_ones = [limit for limit in (getattr(budget, name) for budget in three) if limit is not None]
        assert getattr(holds, name) == min(given_ones, default=None)
    for kind in {kind for budget in three for kind in budget.per_type}:
        assert holds.per_type[kind] == min(budget.per_type[kind] for budget in three if kind in budget.per_type)
