"""A policy tried on the logged history: rank correlation, who gains, who loses, and nothing of other tenants."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, strategies as st

from learnloop_api.wire.reward import DryRunFigures
from learnloop_dataplane.rewards.dry_run import Rankings, midranks, percentiles, ranking_report, spearman

from ..conftest import Api, trajectory

SUCCESS = {"components": [{"name": "done", "type": "success", "weight": 1}]}
RETURN = {"components": [{"name": "return", "type": "environment", "weight": 1}]}
numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)


@given(numbers)
def test_ranks_keep_the_order_and_ties_share_theirs(values: list[float]) -> None:
    ranks = midranks(np.array(values))
    assert ranks.sum() == pytest.approx(len(values) * (len(values) + 1) / 2)
    for one, first in zip(values, ranks, strict=True):
        for other, second in zip(values, ranks, strict=True):
            assert (one < other) == (first < second)
    assert all(0 < value < 100 for value in percentiles(np.array(values)))


@given(numbers)
def test_a_ranking_agrees_with_itself_and_not_with_its_reverse(values: list[float]) -> None:
    array = np.array(values)
    correlations = spearman(array, array), spearman(array, -array)
    expected = (None, None) if len(set(values)) == 1 else (pytest.approx(1.0), pytest.approx(-1.0))
    assert correlations == expected


def test_the_rank_correlation_is_spearmans() -> None:
    assert spearman(np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 3, 2, 5, 4])) == pytest.approx(0.8)


def test_an_empty_history_says_so() -> None:
    report = ranking_report(Rankings(), truncated=False)
    assert (report.trajectories, report.correlation) == (0, None)
    assert "nothing to compare" in report.sentence


async def _log(api: Api, namespace: str, agents: dict[str, list[tuple[float, bool]]]) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/p/revisions/r1", namespace=namespace, json=SUCCESS)
    for agent, episodes in agents.items():
        body = {"reward_policy": "p", "reward_policy_revision": "r1"}
        await api.call("PUT", f"/api/v1/agents/{agent}", namespace=namespace, json=body)
        for index, (value, success) in enumerate(episodes):
            outcome = {"status": "completed", "episode_return": value, "success": success}
            changes = {"outcome": outcome, "task": f"task of {agent}"}
            item = trajectory(f"{agent}-{index}", agent, **changes)
            await api.call("POST", "/api/v1/trajectories", 202, namespace=namespace, json=item)


async def test_who_gains_and_who_loses_under_a_policy_that_is_not_in_force(api: Api) -> None:
    honest, idle = [(1.0, True)] * 6, [(9.0, False)] * 6  # success without return, and return without success
    await _log(api, "try", {"honest": honest, "idle": idle})
    await api.call("POST", "/api/v1/trajectories", 202, namespace="try", json=trajectory("stray-1", "stray"))
    report = await api.call("POST", "/api/v1/rewards/dry-run", namespace="try", json={"policy": RETURN})
    assert (report["trajectories"], report["skipped"], report["correlation"]) == (12, 1, -1.0)
    assert "agent idle gains most (+50.0 points); agent honest loses most (-50.0 points)" in report["sentence"]
    assert DryRunFigures.model_validate(report).correlation == -1.0, "what the operator reads of it"


async def test_a_broken_constraint_ranks_last_in_a_dry_run(api: Api) -> None:
    await _log(api, "safe", {"racer": [(1.0, True), (2.0, True), (3.0, True)]})
    crash = trajectory("crash", "racer", 99.0)
    crash["outcome"] |= {"values": {"collisions": 1.0}, "success": False}
    await api.call("POST", "/api/v1/trajectories", 202, namespace="safe", json=crash)
    policy = RETURN | {"constraints": [{"name": "no-crash", "key": "collisions"}]}
    report = await api.call("POST", "/api/v1/rewards/dry-run", namespace="safe", json={"policy": policy})
    assert report["correlation"] > 0.7, "its return is the highest, and it is the last by both policies"


async def test_a_dry_run_sees_its_own_tenant_and_window_only_and_keeps_nothing(api: Api) -> None:
    for namespace in ("mine", "theirs"):
        await _log(api, namespace, {"walker": [(float(value), value > 2) for value in range(5)]})
    report = await api.call("POST", "/api/v1/rewards/dry-run", namespace="mine", json={"policy": RETURN})
    assert report["trajectories"] == 5
    some = {"policy": RETURN, "limit": 2}
    newest = await api.call("POST", "/api/v1/rewards/dry-run", namespace="mine", json=some)
    assert (newest["trajectories"], newest["truncated"]) == (2, True)
    early = {"policy": RETURN, "until": "2020-01-01T00:00:00Z"}
    assert (await api.call("POST", "/api/v1/rewards/dry-run", namespace="mine", json=early))["trajectories"] == 0
    other = {"policy": RETURN, "agent_ids": ["nobody"]}
    assert (await api.call("POST", "/api/v1/rewards/dry-run", namespace="mine", json=other))["trajectories"] == 0
    async with api.db.tenant("mine") as connection:
        assert await connection.fetchval("SELECT count(*) FROM reward_policy_revisions") == 1


async def test_a_second_dry_run_at_a_time_is_told_to_come_later(api: Api) -> None:
    await _log(api, "busy", {"walker": [(1.0, True)]})
    body = {"policy": RETURN}

    async def ask() -> int:
        headers = {"x-learnloop-namespace": "busy"}
        return (await api.client.post("/api/v1/rewards/dry-run", headers=headers, json=body)).status_code

    assert sorted(await asyncio.gather(ask(), ask())) == [200, 429]


async def test_a_time_beyond_the_calendar_is_refused_with_the_field(api: Api) -> None:
    body = {"policy": RETURN, "since": "9999-12-31T23:59:59-14:00"}
    refused = await api.call("POST", "/api/v1/rewards/dry-run", 422, json=body)
    assert refused["error"]["field"] == "since"
    assert "send a time of this era" in refused["error"]["message"]


async def test_a_dry_run_of_a_wrong_policy_is_refused_with_the_field(api: Api) -> None:
    wrong = {"components": [{"name": "a", "type": "success", "weight": 0.6}]}
    refused = await api.call("POST", "/api/v1/rewards/dry-run", 422, json={"policy": wrong})
    assert refused["error"]["field"] == "policy.components"
