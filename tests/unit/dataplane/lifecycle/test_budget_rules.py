"""Choice between several memory budgets."""

from hypothesis import given, strategies as st

from learnloop_api.wire.memory_budget import MemoryBudget

BUDGET = st.builds(MemoryBudget, memories=st.none() | st.integers(0, 12), bytes=st.none() | st.integers(1, 3000))


@given(BUDGET, BUDGET, BUDGET)
def test_of_any_three_budgets_the_smallest_limits_hold_whoever_gives_them(put, file, everybodys):
    holds = put.within(file.within(everybodys))
    assert holds == everybodys.within(put).within(file)
    for name in ("memories", "bytes"):
        limits = [getattr(budget, name) for budget in (put, file, everybodys)]
        assert getattr(holds, name) == min((limit for limit in limits if limit is not None), default=None)
