"""Steps that are messages: milestones that were mentioned are a potential, and the agent's own words are not."""

import math

import pytest

from learnloop_api.kinds.reward_policy import PotentialShaping, RewardPolicySpec
from learnloop_common.reward_rules.components import Episode, evaluate, potential_sum, potential_terms
from learnloop_common.reward_rules.step_rewards import divided

RULE = PotentialShaping(milestones=["Order found", "refund sent"], weight=2.0, discount=0.9)


def turn(text: str, reply: str = "", *, terminated: bool = False) -> dict:
    messages = [{"role": "tool", "content": [{"type": "text", "text": text}]}]
    return {"observation": {"messages": messages}, "action": {"content": reply}, "terminated": terminated}


TALK = [turn("hello", "Order found, refund sent!"), turn("ORDER FOUND: 7"), turn("thanks"), turn("refund sent")]


def test_a_step_that_reaches_a_milestone_earns_at_once_and_it_stays_reached() -> None:
    terms = potential_terms(RULE, TALK)
    assert terms == pytest.approx([0.9 * 1.0, 0.9 * (0.9 - 1.0), 0.81 * (0.9 * 2.0 - 1.0), 0.0])
    assert math.fsum(terms) == pytest.approx(potential_sum(RULE, TALK))
    assert potential_sum(RULE, TALK) == pytest.approx(0.9**3 * 2.0)


def test_a_task_that_terminates_is_worth_what_it_was_without_shaping() -> None:
    ended = [*TALK[:3], turn("refund sent", terminated=True)]
    assert potential_sum(RULE, ended) == pytest.approx(0.0)
    assert math.fsum(potential_terms(RULE, ended)) == pytest.approx(0.0)
    assert any(term > 0 for term in potential_terms(RULE, ended))


def test_the_worth_and_the_steps_of_a_conversation_follow_the_milestones() -> None:
    spec = RewardPolicySpec.model_validate(
        {"components": [{"name": "done", "type": "success", "weight": 1}], "shaping": RULE.to_kube()}
    )
    assert evaluate(spec, Episode(0.0, True, 4, log=TALK)).raw == pytest.approx(1.0 + 0.9**3 * 2.0)
    parts = divided(spec, Episode(0.0, True, 4, log=TALK), {"messages": [{"content": "bye"}]})
    assert parts == pytest.approx([0.9, -0.1, 0.8, 1.0 + 0.9 * 2.0 - 2.0])


def test_either_a_number_or_milestones_is_the_potential() -> None:
    for wrong in ({"weight": 1}, {"weight": 1, "observation": 0, "milestones": ["x"]}):
        with pytest.raises(ValueError, match="set either observation"):
            PotentialShaping.model_validate(wrong)


def test_texts_of_any_depth_are_read_without_running_out_of_stack() -> None:
    deep = "order found"
    for _ in range(50_000):
        deep = [deep]
    assert potential_sum(RULE, [{"observation": "x"}, {"observation": deep}]) == pytest.approx(0.9)
