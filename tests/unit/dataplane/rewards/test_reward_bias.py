"""Bias of rewards: gaps between groups at equal outcomes, sure ones only; and the group swapped in an episode."""

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.evaluators.evaluator import MAX_TEXT, Tools
from learnloop_dataplane.evaluators.scorers import NoScoreYet
from learnloop_dataplane.rewards import bias_reader
from learnloop_dataplane.rewards.bias import (
    MOST_GROUPS,
    TOO_SMALL,
    Moments,
    Tally,
    bias_figures,
    compare,
    student,
    wilson,
)
from learnloop_dataplane.rewards.bias_reader import (
    BiasQuery,
    BiasReader,
    Look,
    Move,
    characters,
    looks,
    moves,
    replacer,
    summed_up,
)
from learnloop_dataplane.rewards.reward_worker import read_episode

LANGUAGE = "metadata.language"
POLICY = {
    "components": [
        {"name": "done", "type": "success", "weight": 0.5},
        {"name": "rated", "type": "quality", "weight": 0.5},
    ],
    "bias": {"groupBy": [LANGUAGE]},
}


def policy(**bias: Any) -> RewardPolicySpec:
    return RewardPolicySpec.model_validate(POLICY | {"bias": {"groupBy": [LANGUAGE], **bias}})


def rule(**settings: Any) -> BiasCheck:
    return BiasCheck.model_validate({"groupBy": [LANGUAGE], **settings})


def row(name: str, success: bool | None, quality: float, **changes: Any) -> dict[str, Any]:
    return {
        "trajectory_id": "t",
        "agent_id": "a",
        "task": "",
        "labels": json.dumps({"language": name}),
        "task_type": None,
        "told": None,
        "result": None,
        "episode_return": 0.0,
        "success": success,
        "steps": 1,
        "outcome_values": json.dumps({"quality": quality}),
        "log": None,
        "scores": None,
    } | changes


def figures(spec: RewardPolicySpec, rows: list[dict[str, Any]]) -> BiasFigures:
    assert spec.bias is not None
    tally = Tally(spec, spec.bias.group_by)
    for item in rows:
        tally.add(item, read_episode(item))
    return bias_figures(tally, spec.bias, compare(tally, spec.bias), None)


def drawn(seed: int, gap: float, successes: Mapping[str, float], count: int = 300) -> list[dict[str, Any]]:
    """Quality of 0.5 in the mean, `gap` less for de."""
    dice = np.random.default_rng(seed)
    found = []
    for name, rate in successes.items():
        middle = 0.5 - (gap if name == "de" else 0.0)
        for _ in range(count):
            quality = float(np.clip(dice.beta(2, 2) - 0.5 + middle, 0, 1))
            found.append(row(name, bool(dice.random() < rate), quality))
    return found


def test_a_group_that_earns_less_for_the_same_outcome_is_suspected_in_a_plain_sentence() -> None:
    found = figures(policy(), drawn(1, 0.3, {"en": 0.5, "de": 0.5}))
    assert (found.suspected, found.reason) == (True, "RewardGap")
    assert found.sentence.startswith("metadata.language: en earns 0.1")
    assert "more than de for the same outcome" in found.sentence
    assert found.gaps[0].groups == ("en", "de")
    assert found.gaps[0].low > 0.05


def test_a_group_that_fails_more_often_is_no_bias_of_the_reward() -> None:
    rows = drawn(2, 0.0, {"en": 0.9, "de": 0.3})
    found = figures(policy(), rows)
    assert (found.suspected, found.reason) == (False, "NothingFound")
    [rates] = [gap for gap in found.gaps if gap.measure == "success"]
    assert rates.low > 0.4, "it is told all the same"
    strict = figures(policy(maxSuccessGap=0.1), rows)
    assert (strict.suspected, strict.reason) == (True, "SuccessGap")
    assert "en succeeds more often than de" in strict.sentence


def test_a_component_that_pays_groups_differently_is_named_though_the_sum_does_not() -> None:
    spec = {
        "components": [
            {"name": "polite", "type": "outcome", "key": "polite", "weight": 0.5},
            {"name": "rated", "type": "quality", "weight": 0.5},
        ],
        "bias": {"groupBy": [LANGUAGE]},
    }
    rows = []
    for name, polite, quality in (("en", 0.9, 0.1), ("de", 0.1, 0.9)):
        rows += [row(name, True, 0, outcome_values=json.dumps({"polite": polite, "quality": quality}))] * 50
    found = figures(RewardPolicySpec.model_validate(spec), rows)
    assert (found.suspected, found.reason) == (True, "ComponentGap")
    assert "component polite" in found.sentence or "component rated" in found.sentence


def test_alike_groups_raise_a_false_alarm_in_one_of_twenty_runs_at_most() -> None:
    many = {f"g{index}": 0.5 for index in range(6)}
    alarms = sum(bool(figures(policy(maxGap=0), drawn(seed, 0.0, many, 60)).suspected) for seed in range(100))
    assert alarms <= 9, "of 100 at 95 % confidence; more than 9 has a chance below 3 %"


def test_small_groups_are_not_compared_and_a_short_history_says_so() -> None:
    found = figures(policy(), [row(name, True, 0.5) for name in ("en", "de") for _ in range(29)])
    assert (found.suspected, found.reason, found.groups_left_out) == (None, "NotEnoughEpisodes", 2)
    assert "30 episodes" in found.sentence


def test_a_flood_of_groups_is_bounded_and_hides_none_of_the_large_ones() -> None:
    junk = [row(f"junk-{index}", True, 0.5) for index in range(MOST_GROUPS + 50)]
    large = drawn(3, 0.3, {"en": 0.5, "de": 0.5})
    for rows in (large + junk, junk + large, junk[:500] + large + junk[500:]):
        found = figures(policy(), rows)
        assert (found.suspected, found.groups) == (True, {LANGUAGE: 2})
        assert found.groups_left_out == MOST_GROUPS + 50


def test_groups_that_could_be_compared_make_no_room() -> None:
    tally = Tally(policy(), [LANGUAGE])
    for index in range(TOO_SMALL * MOST_GROUPS):
        item = row(f"group-{index // TOO_SMALL}", True, 0.5)
        tally.add(item, read_episode(item))
    tally.add(row("late", True, 0.5), read_episode(row("late", True, 0.5)))
    assert len(tally.groups[LANGUAGE]) == MOST_GROUPS
    assert tally.beyond == {LANGUAGE: 1}


def test_groups_are_read_from_labels_from_the_result_and_from_the_type_of_task() -> None:
    check = rule(groupBy=["taskType", "result.metadata.age", LANGUAGE])
    tally = Tally(policy(), check.group_by)
    item = row("en\n", True, 1, task_type="math", told=json.dumps({"age": 40, "deep": {"a": 1}}))
    tally.add(item, read_episode(item))
    tally.add(row("", None, 1), read_episode(row("", None, 1)))
    assert {key: list(groups) for key, groups in tally.groups.items()} == {
        "taskType": ["math"],
        "result.metadata.age": ["40"],
        LANGUAGE: ["en "],
    }
    assert tally.episodes == 2


def test_moments_are_the_textbooks() -> None:
    values = np.random.default_rng(4).normal(1e6, 3, (500, 2))
    moments = Moments(2)
    for value in values:
        moments.add(value)
    assert moments.mean == pytest.approx(values.mean(0))
    assert moments.m2 / 499 == pytest.approx(values.var(0, ddof=1))


@pytest.mark.parametrize(
    ("freedom", "z", "quantile"), [(29, 1.959964, 2.04523), (9, 2.575829, 3.24984), (100, 3.290527, 3.39049)]
)
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: float, z: float, quantile: float) -> None:
    assert student(z, freedom) == pytest.approx(quantile, rel=5e-4)


def test_intervals_of_rates_are_wilsons() -> None:
    assert wilson(15, 50, 1.959964) == pytest.approx((0.1910, 0.4375), abs=5e-4)


SWAP = [{"group": "woman", "words": ["she", "her", "Anna"]}, {"group": "man", "words": ["he", "him", "Bernd"]}]
GENDER = "metadata.gender"
DEEP = '{"output": ' + "[" * 1020 + '"she"' + "]" * 1020 + "}"


def test_both_groups_words_take_one_anothers_places_whole_and_in_their_case() -> None:
    change = replacer(rule(groupBy=[GENDER], swap=SWAP), Look(GENDER, "woman", "man"))
    assert change("She told Bernd that her heart is THERE, a woman. HER!") == (
        "He told Anna that him heart is THERE, a man. HIM!"
    )


def test_a_short_name_of_a_group_is_no_word() -> None:
    assert replacer(rule(), Look(LANGUAGE, "en", "de"))("la casa de en medio") == "la casa de en medio"


async def move(component: dict[str, Any], output: Any, expected: Any = None, **changes: Any) -> float | None:
    parts = {"components": [{"name": "c", "weight": 1, **component}], **changes.pop("spec", {})}
    check = rule(groupBy=[GENDER], swap=SWAP)
    spec = RewardPolicySpec.model_validate(parts | {"bias": check.to_kube()})
    result = json.dumps({"output": output, "expected": expected, "metadata": {}, "task_type": ""})
    item = row("", True, 0.5, labels=json.dumps({"gender": "woman"}), result=result, **changes)
    found = looks(check, {GENDER: ["woman", "man"]}, item)
    told = await moves(spec, check, item, found, Tools())
    assert told is not None
    return told[0].by


async def test_a_reward_that_hangs_on_the_group_moves_when_it_is_swapped() -> None:
    likes_men = {"type": "evaluator", "evaluator": {"type": "regex", "regex": {"pattern": r"(?i)\bhe\b"}}}
    assert await move(likes_men, "She may have the loan.") == 1.0


async def test_a_reward_of_the_answer_alone_does_not_move() -> None:
    exact = {"type": "evaluator", "evaluator": {"type": "exact"}}
    assert await move(exact, "She may.", "She may.") == 0.0
    assert await move(exact, "Granted.", "Granted.") is None, "nothing names a group"
    assert await move({"type": "success"}, "She may.") is None, "the policy reads no text"


async def test_milestones_that_name_a_group_move_the_reward() -> None:
    log = json.dumps([{"observation": "Hello", "action": 0}, {"observation": "thanks, says Anna", "action": 0}])
    shaping = {"shaping": {"milestones": ["says Anna"], "weight": 1}}
    assert await move({"type": "success"}, None, spec=shaping, log=log, steps=2) == pytest.approx(0.99), (
        "the discounted potential of the last step"
    )


async def test_a_judge_is_not_asked_again_and_named() -> None:
    judge = {"type": "evaluator", "evaluator": {"type": "judge"}}
    assert await move(judge, "She may.", "Yes.", scores=json.dumps({"c": 1.0})) is None
    spec = RewardPolicySpec.model_validate({"components": [{"name": "c", "weight": 1, **judge}]})
    assert summed_up(spec, rule(), []).kept_scores == ["c"]


async def test_an_episode_nested_beyond_reading_is_left_out() -> None:
    spec, check = policy(), rule(groupBy=[GENDER], swap=SWAP)
    item = row("", True, 0.5, labels=json.dumps({"gender": "woman"}), result=DEEP)
    found = looks(check, {GENDER: ["woman", "man"]}, item)
    assert await moves(spec, check, item, found, Tools()) is None


def long_episode(characters: int) -> dict[str, Any]:
    """With a text that is slow to search: each letter may begin a word."""
    result = json.dumps({"output": "! " * (characters // 2), "expected": None, "metadata": {}, "task_type": ""})
    return row("", True, 0.5, labels=json.dumps({"gender": "woman"}), result=result)


async def test_an_episode_with_too_much_text_is_left_out_and_counted() -> None:
    spec, check = policy(), rule(groupBy=[GENDER], swap=SWAP)
    item = long_episode(MAX_TEXT + 2)
    found = looks(check, {GENDER: ["woman", "man"]}, item)
    assert await moves(spec, check, item, found, Tools()) is None
    item = long_episode(MAX_TEXT)
    assert await moves(spec, check, item, found, Tools()) == [Move("t", None)]
    assert summed_up(spec, check, [], 1).left_out == 1
    assert characters({"name": ["ab", {"c": "d", "e": 1}], "f": None}) == 10


async def test_texts_are_swapped_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def seen(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return replacer(*given)

    monkeypatch.setattr(bias_reader, "replacer", seen)
    spec, check = policy(), rule(groupBy=[GENDER], swap=SWAP)
    item = long_episode(1000)
    await moves(spec, check, item, looks(check, {GENDER: ["woman", "man"]}, item), Tools())
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_reward_model_that_does_not_answer_makes_no_reward_move() -> None:
    async def away(sha256: str, question: str, answer: str) -> float:
        raise NoScoreYet("it gave no answer within 15 s")

    model = {"type": "evaluator", "evaluator": {"type": "reward-model", "rewardModel": {"sha256": "a" * 64}}}
    check = rule(groupBy=[GENDER], swap=SWAP)
    parts = {"components": [{"name": "c", "weight": 1, **model}], "bias": check.to_kube()}
    result = json.dumps({"output": "She may.", "expected": None, "metadata": {}, "task_type": ""})
    item = row("", True, 0.5, task="q", labels=json.dumps({"gender": "woman"}), result=result)
    found = looks(check, {GENDER: ["woman", "man"]}, item)
    assert await moves(RewardPolicySpec.model_validate(parts), check, item, found, Tools(scorer=away)) is None


class Held(BiasReader):
    """Checks that last until they are let go."""

    def __init__(self) -> None:
        super().__init__(db=None)  # type: ignore[arg-type]
        self.go = asyncio.Event()

    async def _check(self, namespace: str, *_: Any) -> BiasFigures:
        await self.go.wait()
        return figures(policy(), [])


async def test_a_check_waits_for_no_other_namespace_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Held()
    running = [asyncio.create_task(reader.read(name, policy(), BiasQuery())) for name in ("a", "b")]
    await asyncio.sleep(0)
    for name, told in (("a", "of this namespace"), ("c", "of other namespaces")):
        with pytest.raises(ApiError, match=told) as refused:
            await reader.read(name, policy(), BiasQuery())
        assert (refused.value.status, refused.value.retry_after) == (429, 10)
    reader.go.set()
    await asyncio.gather(*running)
    reader.go.clear()
    monkeypatch.setattr(bias_reader, "CHECK_SECONDS", 0.05)
    with pytest.raises(ApiError, match=r"more than 0\.05 s") as late:
        await reader.read("c", policy(), BiasQuery())
    assert (late.value.status, late.value.field) == (503, "policy.bias.episodes")
    assert reader._busy == set()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"groupBy": ["metadata.user_id"]}, "a person is no group"),
        ({"groupBy": ["user"]}, "pattern"),
        ({"groupBy": []}, "at least 1"),
        ({"groupBy": [LANGUAGE, LANGUAGE]}, "twice"),
        ({"groupBy": [f"metadata.a{index}" for index in range(5)]}, "at most 4"),
        ({"swap": SWAP[:1]}, "two groups"),
        ({"swap": [SWAP[0], {"group": "man", "words": ["he"]}]}, "as many words"),
        ({"swap": [{"group": "a", "words": ["x", "X"]}, {"group": "b", "words": ["y", "z"]}]}, "twice"),
        ({"confidence": 1}, "0.9999"),
    ],
)
def test_a_check_that_cannot_be_made_is_refused_with_the_fix(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        rule(**wrong)
