"""Every selector of every panel and alert finds a series, where the servers have something to tell."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from learnloop_api.wire.training import FIGURES, LEARNED, RESOURCES, Heartbeat
from learnloop_dataplane.metrics import Metrics as DataPlaneMetrics
from learnloop_dataplane.telemetry.agent_metrics import Recent
from learnloop_operator.core.counted_transitions import Happening
from learnloop_operator.core.plan import Plan
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_serving.server_metrics import Metrics as ServingMetrics
from testing.metrics.queries import chosen, dashboards, expressions, rules, selectors

Series = tuple[str, dict[str, str]]
TARGET = {"namespace": "learnloop-system", "pod": "p-0", "component": "c", "instance": "i", "job": "learnloop"}
NOT_HERE: dict[str, str] = {}
"""Selectors that find nothing here, and why."""


def data_plane() -> CollectorRegistry:
    metrics = DataPlaneMetrics()
    metrics.agents.trajectory("team", "pole", "v1")
    metrics.agents.reward("team", "pole", "v1", 1.0)
    metrics.agents.recent("team", "pole", [Recent(None, 1.0, 1.0, 0.0), Recent("v1", 1.0, 1.0, 0.0)])
    metrics.agents.judged("team", "pole", 1, True)
    metrics.agents.opinion("team", "pole", -0.5)
    metrics.count("attempts", "team")
    metrics.not_collected("team", "invalid")
    metrics.nats(lambda: True)
    metrics.recall(0.01)
    metrics.budget("team", "pole", 1, 1, 1)
    metrics.consolidated("team", 1, 1)
    metrics.count("refused", "team", "schema")
    metrics.stream("RL_TRAJECTORIES", 2, 1, 1)
    metrics.background_failures.labels("rewards").inc()
    metrics.requests.labels("/healthz", "GET", "200").observe(0.1)
    figures = dict.fromkeys((*FIGURES, *RESOURCES, *LEARNED, "action_share_0"), 0.5)
    beat = {
        "job": "pole-1", "agent": "pole", "attempt": 0, "phase": "training", "step": 1, "total_steps": 2,
        "world_size": 1, "steps_per_second": 1.0, "figures": figures, "at": datetime.now(UTC),
        "recent_return": {"episodes": 1, "mean": 1.0, "iqm": 1.0, "ci_low": 1.0, "ci_high": 1.0},
    }  # fmt: skip
    metrics.runs.beat("team", Heartbeat.model_validate(beat))
    return metrics.registry


def operator() -> CollectorRegistry:
    metrics = OperatorMetrics()
    news = [("training", "failed", 9.0), ("validation", "passed", None), ("rollout", "rolled_back", None)]
    news += [("roll_back", "GrossBreach", None), ("anomaly", "SuddenDrop", None), ("deployment", "Promoted", None)]
    news += [("reserved", "cpu", None), ("spent", "EUR", None)]
    metrics.loop.count([Happening(what, "team", "pole", result, took) for what, result, took in news])
    metrics.loop.stands("LearningAgent", "team", "pole", Plan({}))
    conditions = [
        {"type": "Progressing", "status": "True"},
        {"type": "DataAvailable", "status": "False", "lastTransitionTime": "2026-01-31T12:00:00Z"},
    ]
    metrics.loop.stands("ModelDeployment", "team", "pole", Plan({"canary": {}, "weight": 10, "conditions": conditions}))
    metrics.reconciles.labels("TrainingJob", "ok").inc()
    metrics.seconds.labels("TrainingJob").observe(0.1)
    metrics.written("patch", "TrainingJob")
    metrics.lane_seconds.observe(1.0)
    metrics.certificate_expiry.set(1)
    return metrics.registry


def policy_server() -> CollectorRegistry:
    metrics = ServingMetrics("pole", "3f9a2c81")
    metrics.opened("3f9a2c81")
    metrics.ended("success", 1.0, 1.0)
    metrics.observe["act"](0.001)
    return metrics.registry


@pytest.fixture(scope="module")
def scraped() -> list[Series]:
    """As the chart's Prometheus stores it: a target's own label `namespace` makes way."""
    series = []
    for registry in (data_plane(), operator(), policy_server()):
        for family in registry.collect():
            for sample in family.samples:
                own = {("exported_namespace" if key == "namespace" else key): v for key, v in sample.labels.items()}
                series.append((sample.name, {**TARGET, **own}))
    return series


def queries() -> Iterator[tuple[str, str]]:
    for name, page in dashboards().items():
        for where, expression in expressions(page):
            yield f"{name}: {where}", expression
    for rule in rules():
        yield rule["alert"], chosen(rule["expr"])


def matches(labels: dict[str, str], matcher: object) -> bool:
    name, op, value = matcher.name, str(matcher.op), matcher.value
    text = labels.get(name, "")
    if "Re" in op:
        return (re.fullmatch(value, text) is not None) == ("Not" not in op)
    return (text == value) == ("Not" not in op)


def test_every_selector_finds_a_series_or_stands_on_the_list(scraped: list[Series]) -> None:
    empty = {}
    for where, expression in queries():
        for selector in selectors(expression):
            wanted = list(selector.matchers.matchers)
            if not any(name == selector.name and all(matches(own, one) for one in wanted) for name, own in scraped):
                empty[str(selector)] = where
    assert set(empty) == set(NOT_HERE), empty


def test_a_selector_of_a_value_that_nobody_has_is_found_out(scraped: list[Series]) -> None:
    (selector,) = selectors('learnloop_rollouts_total{result="never"}')
    wanted = list(selector.matchers.matchers)
    named = [own for name, own in scraped if name == selector.name]
    assert named
    assert not any(all(matches(own, one) for one in wanted) for own in named)
