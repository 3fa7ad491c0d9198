"""Bias of rewards: gaps between groups at equal outcomes, sure ones only."""

import asyncio
import json
from collections.abc import Mapping

import numpy as np
import pytest
from pydantic import ValidationError

from learnloop_api.kinds.reward_policy import BiasCheck, RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.rewards import bias
from learnloop_dataplane.rewards.bias import BiasQuery, BiasReader, compare, earned, groups_of, student

LANGUAGE = "metadata.language"
POLICY = {
    "components": [
        {"name": "done", "type": "success", "weight": 0.5},
        {"name": "rated", "type": "quality", "weight": 0.5},
    ],
    "bias": {"groupBy": [LANGUAGE]},
}


def policy(**settings) -> RewardPolicySpec:
    return RewardPolicySpec.model_validate(POLICY | {"bias": {"groupBy": [LANGUAGE], **settings}})


def rule(**settings) -> BiasCheck:
    return BiasCheck.model_validate({"groupBy": [LANGUAGE], **settings})


def row(name: str, success: bool | None, quality: float, **changes) -> dict:
    return {
        "trajectory_id": "t",
        "agent_id": "a",
        "task": "",
        "labels": json.dumps({"language": name}),
        "task_type": None,
        "result_metadata": None,
        "episode_return": 0.0,
        "success": success,
        "steps": 1,
        "outcome_values": json.dumps({"quality": quality}),
        "log": None,
        "scores": None,
    } | changes


def figures(spec: RewardPolicySpec, rows: list[dict]) -> BiasFigures:
    rule = spec.bias
    return compare(spec, rule, [earned(spec, rule, item) for item in rows])


def drawn(seed: int, gap: float, successes: Mapping[str, float], count: int = 300) -> list[dict]:
    """Quality of 0.5 in the mean, `gap` less for de."""
    dice = np.random.default_rng(seed)
    rows = []
    for name, rate in successes.items():
        middle = 0.5 - (gap if name == "de" else 0.0)
        for _ in range(count):
            quality = float(np.clip(dice.beta(2, 2) - 0.5 + middle, 0, 1))
            rows.append(row(name, bool(dice.random() < rate), quality))
    return rows


def test_a_group_that_earns_less_for_the_same_outcome_is_suspected_in_a_plain_sentence() -> None:
    report = figures(policy(), drawn(1, 0.3, {"en": 0.5, "de": 0.5}))
    assert (report.suspected, report.reason) == (True, "RewardGap")
    assert report.sentence.startswith("metadata.language: en earns 0.1")
    assert "more than de for the same outcome" in report.sentence
    assert report.gaps[0].groups == ("en", "de")
    assert report.gaps[0].low > 0.05


def test_a_group_that_fails_more_often_is_no_bias_of_the_reward() -> None:
    report = figures(policy(), drawn(2, 0.0, {"en": 0.9, "de": 0.3}))
    assert (report.suspected, report.reason) == (False, "NothingFound")


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
    report = figures(RewardPolicySpec.model_validate(spec), rows)
    assert (report.suspected, report.reason) == (True, "ComponentGap")
    assert "component polite" in report.sentence or "component rated" in report.sentence


def test_alike_groups_raise_a_false_alarm_in_one_of_twenty_runs_at_most() -> None:
    many = {f"g{index}": 0.5 for index in range(6)}
    alarms = sum(bool(figures(policy(maxGap=0), drawn(seed, 0.0, many, 60)).suspected) for seed in range(100))
    assert alarms <= 9, "of 100 at 95 % confidence; more than 9 has a chance below 3 %"


def test_small_groups_are_not_compared_and_a_short_history_says_so() -> None:
    report = figures(policy(), [row(name, True, 0.5) for name in ("en", "de") for _ in range(29)])
    assert (report.suspected, report.reason, report.groups_left_out) == (None, "NotEnoughEpisodes", 2)
    assert "30 episodes" in report.sentence


def test_a_flood_of_groups_hides_none_of_the_large_ones() -> None:
    junk = [row(f"junk-{index}", True, 0.5) for index in range(1050)]
    large = drawn(3, 0.3, {"en": 0.5, "de": 0.5})
    for rows in (large + junk, junk + large, junk[:500] + large + junk[500:]):
        report = figures(policy(), rows)
        assert (report.suspected, report.groups) == (True, {LANGUAGE: 2})
        assert report.groups_left_out == 1050


def test_a_broken_constraint_caps_the_reward_that_groups_are_compared_by() -> None:
    spec = RewardPolicySpec.model_validate(POLICY | {"constraints": [{"name": "no-leak", "key": "leaks"}]})
    item = row("en", True, 1.0, outcome_values=json.dumps({"quality": 1.0, "leaks": 1}))
    assert earned(spec, spec.bias, item).values[0] == -1.0


def test_groups_are_read_from_labels_from_the_result_and_from_the_type_of_task() -> None:
    keys = ["taskType", "result.metadata.age", LANGUAGE]
    item = row("en\n", True, 1, task_type="math", result_metadata=json.dumps({"age": 40, "deep": {"a": 1}}))
    assert groups_of(item, keys) == {"taskType": "math", "result.metadata.age": "40", LANGUAGE: "en "}
    assert groups_of(row("", None, 1), keys) == {}


@pytest.mark.parametrize(
    ("freedom", "z", "quantile"), [(29, 1.959964, 2.04523), (9, 2.575829, 3.24984), (100, 3.290527, 3.39049)]
)
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: float, z: float, quantile: float) -> None:
    assert student(z, freedom) == pytest.approx(quantile, rel=5e-4)


class Held(BiasReader):
    """Checks that last until they are let go."""

    def __init__(self) -> None:
        super().__init__(db=None)
        self.go = asyncio.Event()

    async def _check(self, namespace: str, *_) -> BiasFigures:
        await self.go.wait()
        return figures(policy(), [])


async def test_a_check_waits_for_no_other_namespace_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Held()
    running = [asyncio.create_task(reader.read(name, policy(), BiasQuery())) for name in ("a", "b")]
    await asyncio.sleep(0)
    reader.go.set()
    await asyncio.gather(*running)
    reader.go.clear()
    monkeypatch.setattr(bias, "CHECK_SECONDS", 0.05)
    with pytest.raises(ApiError, match=r"more than 0\.05 s") as late:
        await reader.read("c", policy(), BiasQuery())
    assert (late.value.status, late.value.field) == (503, "policy.bias.episodes")
    reader.go.set()
    await reader.read("c", policy(), BiasQuery())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"groupBy": ["metadata.user_id"]}, "a person, not a group"),
        ({"groupBy": ["user"]}, "pattern"),
        ({"groupBy": []}, "at least 1"),
        ({"groupBy": [LANGUAGE, LANGUAGE]}, "twice"),
        ({"groupBy": [f"metadata.a{index}" for index in range(5)]}, "at most 4"),
        ({"confidence": 1}, "0.9999"),
    ],
)
def test_a_check_that_cannot_be_made_is_refused_with_the_fix(wrong: dict, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        rule(**wrong)
