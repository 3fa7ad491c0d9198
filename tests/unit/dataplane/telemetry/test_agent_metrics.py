"""Metrics of agents and model versions: on raw rewards, and bounded whatever agents there are."""

import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from learnloop_common.bounded_labels import OTHER, BoundedLabels
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.rewards.reward_tables import Running
from learnloop_dataplane.telemetry.agent_metrics import MOST_VERSIONS, STALE_SECONDS, AgentMetrics, Recent


def samples(metrics: Metrics, name: str) -> Iterator[tuple[dict[str, str], float]]:
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.name == name:
                yield sample.labels, sample.value


def test_an_agent_shows_its_newest_model_versions_only() -> None:
    metrics = Metrics()
    for version in range(20):
        metrics.agents.trajectory("team", "a", f"v{version}")
    shown = [labels["model_version"] for labels, _ in samples(metrics, "agent_rl_trajectories_collected_total")]
    assert sorted(shown) == sorted(f"v{version}" for version in range(20 - MOST_VERSIONS, 20))


def test_the_mean_of_a_version_does_not_move_with_the_others() -> None:
    metrics = Metrics()
    figures = [Recent(None, 50.0, 0.5, 0.1), Recent("old", 0.0, 0.0, 0.2), Recent("new", 100.0, 1.0, 0.0)]
    metrics.agents.recent("team", "a", figures)
    means = {labels["model_version"]: value for labels, value in samples(metrics, "agent_rl_model_reward_mean")}
    assert means == {"old": 0.0, "new": 100.0}
    assert [value for _, value in samples(metrics, "average_reward")] == [50.0]
    assert [value for _, value in samples(metrics, "task_success_rate")] == [0.5]


def test_a_model_that_plays_no_more_has_no_figures_rather_than_its_last_ones() -> None:
    metrics = Metrics()
    metrics.agents.recent("team", "a", [Recent(None, 1.0, None, 0.5), Recent("bad", 1.0, None, 0.9)])
    metrics.agents.recent("team", "a", [Recent(None, 2.0, None, 0.0), Recent("good", 2.0, None, 0.0)])
    assert {labels["model_version"] for labels, _ in samples(metrics, "agent_rl_model_error_rate")} == {"good"}
    assert {labels["model_version"] for labels, _ in samples(metrics, "agent_rl_model_reward_mean")} == {"good"}


def test_what_another_replica_has_news_of_is_read_again_and_keeps_nobody_out() -> None:
    now = [0.0]
    agents = AgentMetrics(CollectorRegistry(), lambda: now[0])
    agents._agents = BoundedLabels(agents._forget_agent, most=2, idle_seconds=3600.0, clock=lambda: now[0])
    agents.recent("team", "a", [Recent(None, 1.0, None, 0.0)])
    agents.recent("other", "b", [Recent(None, 1.0, None, 0.0)])
    assert agents.stale("team") == []
    now[0] = STALE_SECONDS
    assert agents.stale("team") == ["a"]
    agents.recent("team", "a", [Recent(None, 9.0, None, 0.0)], news=False)
    assert agents.stale("team") == []
    now[0] = 3601.0
    agents.recent("team", "a", [Recent(None, 9.0, None, 0.0)], news=False)
    agents.recent("team", "new", [Recent(None, 3.0, None, 0.0)])
    agents.recent("team", "a", [Recent(None, 9.0, None, 0.0)], news=False)
    averages = {sample.labels["agent"]: sample.value for sample in agents._average.collect()[0].samples}
    assert averages == {"b": 1.0, "new": 3.0}, "a had no news for an hour and made room"


def test_an_agent_without_rewards_has_no_mean_rather_than_zero() -> None:
    metrics = Metrics()
    metrics.agents.recent("team", "a", [Recent(None, 3.0, None, 0.0)])
    metrics.agents.recent("team", "a", [Recent(None, None, None, 0.5), Recent("v", None, None, 0.5)])
    assert not list(samples(metrics, "average_reward"))
    assert not list(samples(metrics, "agent_rl_model_reward_mean"))
    assert [value for _, value in samples(metrics, "agent_rl_model_error_rate")] == [0.5]


def test_the_share_of_recalls_that_helped_is_of_the_newest_hundred() -> None:
    metrics = Metrics()
    metrics.agents.judged("team", "a", 100, False)
    metrics.agents.judged("team", "a", 25, True)
    assert [value for _, value in samples(metrics, "memory_utilization")] == [0.25]
    judged = {labels["verdict"]: value for labels, value in samples(metrics, "learnloop_recalls_judged_total")}
    assert judged == {"helped": 25.0, "hurt": 100.0}


def test_who_was_silent_for_an_hour_makes_room() -> None:
    now, gone = [0.0], list[tuple[str, ...]]()
    labels = BoundedLabels(gone.append, most=2, idle_seconds=3600.0, clock=lambda: now[0])
    assert [labels.admit((name,)) for name in "abc"] == [("a",), ("b",), (OTHER,)]
    now[0] = 3599.0
    labels.admit(("a",))
    now[0] = 3601.0
    assert labels.admit(("c",)) == ("c",)
    assert gone == [("b",)], "a spoke a moment ago"


def test_a_reward_that_grows_is_seen_in_the_mean_of_raw_ones_and_not_of_normalised_ones() -> None:
    """Why raw: success from 0.5 to 0.65 is worth +0.15 raw, and the running z-score forgets it."""
    running, normalised = Running(), list[float]()
    raw = [float(index % 20 < (10 if index < 1000 else 13)) for index in range(11_000)]
    for value in raw:
        running = running.add(value)
        normalised.append((value - running.mean) / running.std if running.std else 0.0)
    assert sum(raw[-100:]) / 100 == pytest.approx(0.65)
    assert abs(math.fsum(normalised[-100:]) / 100) < 0.05
