import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.kinds.reward_policy import RewardComponent
from learnloop_common.reward_rules.components import Episode, component_value
from learnloop_sdk import LearnloopError, difference

COMPONENT = RewardComponent(name="mine", type="difference", weight=1)
efforts = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0, 100), min_size=1)


def best(team: dict[str, float]) -> float:
    """A team that is as good as its best member: most of them contribute nothing."""
    return max(team.values(), default=0.0)


def reward(team: dict[str, float], member: str) -> float:
    value = component_value(COMPONENT, Episode(0.0, None, 1, difference(best, team, member)))
    assert value is not None
    return value


@given(efforts, st.data())
def test_what_a_member_gains_by_a_change_the_team_gains(team: dict[str, float], data: st.DataObject) -> None:
    member = data.draw(st.sampled_from(sorted(team)))
    changed = team | {member: data.draw(st.floats(0, 100))}
    assert reward(changed, member) - reward(team, member) == pytest.approx(best(changed) - best(team), abs=1e-9)


@given(efforts)
def test_the_counterfactual_knows_nothing_of_the_member(team: dict[str, float]) -> None:
    for member in team:
        asked: list[set[str]] = []
        difference(lambda present, asked=asked: float(asked.append(set(present)) or 0), team, member)  # type: ignore[misc,func-returns-value]
        assert asked == [set(team), set(team) - {member}]


def test_who_adds_nothing_gets_nothing_and_strangers_are_refused() -> None:
    assert reward({"a": 3.0, "b": 5.0}, "a") == 0
    assert reward({"a": 3.0, "b": 5.0}, "b") == 2
    with pytest.raises(LearnloopError, match="'c' is not in the team; it has a"):
        difference(best, {"a": 1.0}, "c")
