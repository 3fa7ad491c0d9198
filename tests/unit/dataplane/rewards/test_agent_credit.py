"""One reward, several agents: the parts add up, whatever is known, and follow what each of them adds."""

import math

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.reward_policy import TeamCredit
from learnloop_dataplane.rewards.team_credit import divide

DIFFERENCE = TeamCredit(method="difference")
NAMES = list("abcdefgh")


def test_the_difference_is_what_the_team_has_with_an_agent_and_not_without_it() -> None:
    parts = divide(DIFFERENCE, 10.0, {"a": 2.0, "b": 8.0, "c": 10.0})
    assert parts.method == "difference"
    assert parts.parts == pytest.approx({"a": 8.0, "b": 2.0, "c": 0.0})


def test_without_any_knowledge_of_smaller_teams_all_get_the_same() -> None:
    for method in ("equal", "difference"):
        parts = divide(TeamCredit.model_validate({"method": method}), 9.0, dict.fromkeys("abc"))
        assert (parts.method, parts.parts) == ("equal", {"a": 3.0, "b": 3.0, "c": 3.0})
    assert divide(DIFFERENCE, 4.0, {"solo": 1.0}).parts == {"solo": 4.0}


def test_agents_of_which_nothing_is_known_share_the_rest_equally() -> None:
    parts = divide(DIFFERENCE, 10.0, {"a": 4.0, "b": None, "c": None}).parts
    assert parts == pytest.approx({"a": 6.0 + 4 / 3, "b": 4 / 3, "c": 4 / 3})


@given(
    st.sampled_from(["equal", "difference"]),
    st.dictionaries(st.sampled_from(NAMES), st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=8),
    st.floats(-1e6, 1e6),
)
def test_the_parts_always_add_up_to_the_reward(method: str, without: dict[str, float | None], reward: float) -> None:
    parts = divide(TeamCredit.model_validate({"method": method}), reward, without)
    assert list(parts.parts) == list(without)
    assert math.fsum(parts.parts.values()) == pytest.approx(reward, abs=1e-6)
