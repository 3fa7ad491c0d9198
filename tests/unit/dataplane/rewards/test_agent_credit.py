"""One reward, several agents: the parts add up, whatever is known, and follow what each of them adds."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.kinds.reward_components import TeamCredit
from learnloop_dataplane.task_rewards.team_credits import Coalition, Division, divide

GLOVES = {"left": 1, "left-2": 1, "right": 0}
NAMES = list("abcdefgh")


def parts(found: Division) -> dict[str, float]:
    return {part.agent: part.credit for part in found.parts}


def glove(team: Coalition) -> float:
    """One pair needs a left and a right glove."""
    return float("right" in team and bool(team - {"right"}))


def every(agents: list[str], value: object) -> dict[Coalition, float]:
    teams = [frozenset(team) for size in range(len(agents)) for team in combinations(agents, size)]
    return {team: value(team) for team in teams}  # type: ignore[operator]


def test_the_glove_game_is_divided_as_in_the_textbook() -> None:
    agents = list(GLOVES)
    found = divide(TeamCredit(method="shapley"), 1.0, agents, every(agents, glove))
    assert parts(found) == pytest.approx({"left": 1 / 6, "left-2": 1 / 6, "right": 4 / 6})
    assert [part.error for part in found.parts] == [0.0, 0.0, 0.0]
    assert found.samples == 6


def test_sampling_comes_near_the_exact_value_and_says_how_near() -> None:
    def value(team: Coalition) -> float:
        return float(len(team) ** 2 + 5 * ({"a", "b"} <= team))

    agents = NAMES
    known = every(agents, value)
    exact = divide(TeamCredit(method="shapley", samples=20_000), value(frozenset(agents)), agents[:5], {})
    assert exact.method == "equal", "nothing is known of smaller teams"
    found = divide(TeamCredit(method="shapley", samples=2000), value(frozenset(agents)), agents, known, seed="t")
    again = divide(TeamCredit(method="shapley", samples=2000), value(frozenset(agents)), agents, known, seed="t")
    assert found == again
    for part in found.parts:
        truth = 8.0 + 2.5 * (part.agent in "ab")
        assert part.error < 0.1
        assert abs(part.credit - truth) <= 5 * part.error + 1e-9
    assert found.samples == 2000


def test_the_difference_is_what_the_team_has_with_an_agent_and_not_without_it() -> None:
    known = {frozenset({"b", "c"}): 2.0, frozenset({"a", "c"}): 8.0, frozenset({"a", "b"}): 10.0}
    found = divide(TeamCredit(method="difference"), 10.0, ["a", "b", "c"], known)
    assert parts(found) == pytest.approx({"a": 8.0, "b": 2.0, "c": 0.0})


def test_without_any_knowledge_of_smaller_teams_all_get_the_same() -> None:
    for method in ("equal", "difference", "shapley"):
        found = divide(TeamCredit(method=method), 9.0, ["a", "b", "c"], {frozenset(): 1.0})
        assert (found.method, parts(found)) == ("equal", {"a": 3.0, "b": 3.0, "c": 3.0})
    assert parts(divide(TeamCredit(method="shapley"), 4.0, ["solo"], {})) == {"solo": 4.0}


def test_agents_that_were_never_seen_apart_get_the_same() -> None:
    known = {frozenset({"a"}): 6.0}
    found = parts(divide(TeamCredit(method="shapley"), 10.0, ["a", "b", "c"], known))
    assert found["b"] == pytest.approx(found["c"], abs=1e-4)
    assert found["a"] == pytest.approx(6.0, abs=1e-3)


def test_what_nobody_at_all_would_have_got_is_shared_equally() -> None:
    known = {frozenset(): 2.0, frozenset({"a"}): 6.0, frozenset({"b"}): 2.0}
    assert parts(divide(TeamCredit(method="shapley"), 6.0, ["a", "b"], known)) == pytest.approx({"a": 5.0, "b": 1.0})


@given(
    st.sampled_from(["equal", "difference", "shapley"]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=8, unique=True),
    st.floats(-1e6, 1e6),
    st.dictionaries(st.frozensets(st.sampled_from(NAMES), max_size=6), st.floats(-1e6, 1e6), max_size=12),
)
def test_the_parts_always_add_up_to_the_reward(
    method: str, agents: list[str], reward: float, known: dict[Coalition, float]
) -> None:
    found = divide(TeamCredit.model_validate({"method": method, "samples": 10}), reward, agents, known)
    assert [part.agent for part in found.parts] == agents
    total = math.fsum(part.credit for part in found.parts)
    assert total == pytest.approx(reward, abs=1e-3 + 1e-9 * max([abs(reward), *map(abs, known.values())]))
    assert all(math.isfinite(part.credit) and math.isfinite(part.error) for part in found.parts)
