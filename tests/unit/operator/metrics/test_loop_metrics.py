"""The operator's counts of loops: once each, from what it writes, and bounded."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from learnloop_operator.core.counted_transitions import Happening, happenings
from learnloop_operator.core.plan import BaseSnapshot, Notice, Plan
from learnloop_operator.operator_metrics import LoopMetrics

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
RUNNING = {"startedAt": "2026-01-31T11:59:00Z", "phase": "Training"}


def situation(kind: str, status: dict, **labels: str) -> BaseSnapshot:
    body = {"kind": kind, "metadata": {"name": "x", "namespace": "team", "labels": labels}, "status": status}
    return BaseSnapshot(now=NOW, object=body)


def ended(reason: str) -> dict:
    ready = {"type": "Ready", "status": "False", "reason": reason}
    return RUNNING | {"finishedAt": "2026-01-31T12:00:00Z", "conditions": [ready]}


def test_a_run_that_fails_its_gates_is_not_one_that_is_done() -> None:
    """Runs that the data plane counted as done: every run that had a proof."""
    job = situation("TrainingJob", RUNNING, **{"learnloop.dev/learning-agent": "pole"})
    counted = {reason: happenings("TrainingJob", job, Plan(ended(reason))) for reason in ("GatesFailed", "Validated")}
    assert counted["GatesFailed"] == (
        Happening("training", "team", "pole", "gates_failed", 60.0),
        Happening("validation", "team", "pole", "failed"),
    )
    assert counted["Validated"][0].result == "validated"
    assert happenings("TrainingJob", job, Plan(ended("AttemptsExhausted"))) == (
        Happening("training", "team", "pole", "failed", 60.0),
    )


def test_an_end_is_counted_by_the_pass_that_writes_it_and_by_no_other() -> None:
    plan = Plan(ended("Validated"))
    job = situation("TrainingJob", RUNNING)
    assert happenings("TrainingJob", job, plan)
    again = replace(job, object={**job.object, "status": plan.status})
    assert happenings("TrainingJob", again, plan) == ()


def test_a_rollback_is_counted_by_its_reason_and_ends_a_rollout() -> None:
    block = {"revision": "3f9a2c81", "reason": "GrossBreach", "at": "2026-01-31T12:00:00Z"}
    plan = Plan({"blockedRevisions": [block]}, events=(Notice("Warning", "RolledBack", "…"),))
    served = situation("ModelDeployment", {}, **{"learnloop.dev/learning-agent": "pole"})
    counted = {(item.what, item.result) for item in happenings("ModelDeployment", served, plan)}
    assert counted == {("rollout", "rolled_back"), ("roll_back", "GrossBreach")}


def test_a_promotion_is_a_deployment_and_a_first_model_no_rollout() -> None:
    served = situation("ModelDeployment", {})
    promoted = Plan({}, events=(Notice("Normal", "Promoted", "…"),))
    first = Plan({}, events=(Notice("Normal", "FirstModelServed", "…"),))
    assert [item.what for item in happenings("ModelDeployment", served, promoted)] == ["rollout", "deployment"]
    assert [item.what for item in happenings("ModelDeployment", served, first)] == ["deployment"]
    assert {item.agent for item in happenings("ModelDeployment", served, promoted)} == {"_none"}


def test_ten_thousand_agents_leave_a_bounded_number_of_series() -> None:
    registry = CollectorRegistry()
    metrics = LoopMetrics(registry)
    for index in range(10_000):
        agent = f"agent-{index}"
        news = [Happening("training", "team", agent, result, 60.0) for result in ("validated", "failed")]
        metrics.count([*news, Happening("roll_back", "team", agent, "CheckFailed")])
        metrics.stands("LearningAgent", "team", agent, Plan({}, figures={"training_failures_in_a_row": 2}))
        metrics.stands("ModelDeployment", "team", agent, Plan({"weight": 10}))
    series = sum(len(family.samples) for family in registry.collect())
    assert series < 1001 * (7 + 2 * 12 + 1) + 4 * 1001
    assert not [family.name for family in registry.collect() for sample in family.samples if "_created" in sample.name]


def test_the_series_of_an_agent_exist_before_its_first_run_ends() -> None:
    registry = CollectorRegistry()
    LoopMetrics(registry).stands("LearningAgent", "team", "x", Plan({}))
    labels = {"namespace": "team", "agent": "x", "result": "failed"}
    assert registry.get_sample_value("agent_rl_model_validations_total", labels) == 0.0


@pytest.mark.parametrize(
    ("kind", "metric", "result"),
    [
        ("ModelDeployment", "learnloop_rollouts_total", "rolled_back"),
        ("TrainingJob", "agent_rl_model_validations_total", "failed"),
    ],
)
def test_the_series_of_what_is_no_agents_exist_before_its_first_failure(kind: str, metric: str, result: str) -> None:
    registry = CollectorRegistry()
    LoopMetrics(registry).stands(kind, "team", "x", Plan({}))
    value = registry.get_sample_value(metric, {"namespace": "team", "agent": "_none", "result": result})
    assert value == 0.0, "increase() misses a first one, and its alert"


def test_the_series_of_an_object_go_with_it() -> None:
    registry = CollectorRegistry()
    metrics = LoopMetrics(registry)
    labels = {"namespace": "team", "model_deployment": "x"}
    metrics.stands("ModelDeployment", "team", "x", Plan({"weight": 25}))
    assert registry.get_sample_value("learnloop_rollout_weight_ratio", labels) == 0.25
    metrics.gone("ModelDeployment", "team", "x")
    assert registry.get_sample_value("learnloop_rollout_weight_ratio", labels) is None


def test_missing_evidence_has_a_beginning_while_a_rollout_runs() -> None:
    registry = CollectorRegistry()
    metrics = LoopMetrics(registry)
    labels = {"namespace": "team", "model_deployment": "x"}
    conditions = [
        {"type": "Progressing", "status": "True"},
        {"type": "DataAvailable", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"},
    ]
    name = "learnloop_evidence_missing_since_timestamp_seconds"
    metrics.stands("ModelDeployment", "team", "x", Plan({"canary": {}, "conditions": conditions}))
    assert registry.get_sample_value(name, labels) == 60.0
    metrics.stands("ModelDeployment", "team", "x", Plan({"conditions": conditions}))
    assert registry.get_sample_value(name, labels) is None, "no rollout waits for it"
