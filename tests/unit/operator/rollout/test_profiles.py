"""A profile stands for steps; auto follows what became of the last models, says why, and holds for a whole rollout."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus, ProfileStatus
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.model.profiles import STEPS, expanded

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def spec(profile: str | None) -> ModelDeploymentSpec:
    rollout = {"profile": profile} if profile else {}
    return ModelDeploymentSpec.model_validate(
        {"model": {"uri": "uniform://discrete/2?observations=4"}, "rollout": rollout}
    )


def chosen(before: dict[str, Any] | None = None, profile: str = "auto", now: datetime = NOW) -> ProfileStatus:
    _, found = expanded(spec(profile), ModelDeploymentStatus.model_validate(before or {}), now)
    assert found is not None
    return found


def rolled_back(days: float) -> dict[str, Any]:
    at = stamp(NOW - timedelta(days=days))
    return {"revision": "3f9a2c81", "uri": "https://m/1", "reason": "ReturnWorse", "message": "worse", "at": at}


@pytest.mark.parametrize("name", list(STEPS))
def test_every_profile_is_a_way_to_everybody_that_admission_would_take(name: str) -> None:
    found, profile = expanded(spec(name), ModelDeploymentStatus(), NOW)
    weights = [step.weight for step in found.rollout.steps]
    assert weights == sorted(weights)
    assert weights[-1] == 100
    assert all((step.weight == 0) == (step.shadow is not None) for step in found.rollout.steps)
    assert profile is not None
    assert profile.name == name


def test_cautious_takes_four_hours() -> None:
    found, _ = expanded(spec("cautious"), ModelDeploymentStatus(), NOW)
    assert [step.weight for step in found.rollout.steps] == [10, 25, 50, 100]
    assert sum(step.min_seconds for step in found.rollout.steps) == 4 * 3600


def test_without_a_profile_the_steps_are_the_users() -> None:
    mine = spec(None)
    assert expanded(mine, ModelDeploymentStatus(), NOW) == (mine, None)


def test_auto_is_cautious_for_a_week_after_a_rollback_and_says_which() -> None:
    found = chosen({"blockedRevisions": [rolled_back(2)]})
    assert (found.name, found.why) == ("cautious", "cautious: 3f9a2c81 was rolled back 2d00h ago")
    assert chosen({"blockedRevisions": [rolled_back(8)]}).name == "standard"


def test_auto_is_fast_after_three_promotions_in_a_row_and_a_rollback_begins_anew() -> None:
    before: dict[str, Any] = {}
    names = []
    for day in range(4):
        found = chosen(before)
        names.append(found.name)
        before = {"profile": found.to_kube(), "promotedAt": stamp(NOW + timedelta(days=day))}
    assert [*names, chosen(before).name] == ["standard", "standard", "standard", "fast", "fast"]
    after = chosen({**before, "blockedRevisions": [rolled_back(-5)]}, now=NOW + timedelta(days=30))
    assert (after.name, after.promotions) == ("standard", 0)


def test_a_rollout_under_way_keeps_its_profile_unless_somebody_names_another() -> None:
    canary = {"revision": "77ab01de", "uri": "https://m/2", "replicas": 1, "readyReplicas": 1}
    known = {"name": "fast", "why": "fast: the last 3 models were promoted, and none was rolled back since"}
    before = {"canary": canary, "profile": known, "blockedRevisions": [rolled_back(1)]}
    assert chosen(before).name == "fast"
    assert chosen(before, "cautious").name == "cautious"
    assert chosen({**before, "canary": None}).name == "cautious"
