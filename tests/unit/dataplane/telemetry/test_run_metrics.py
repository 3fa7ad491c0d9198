"""Metrics of training runs: while they go on, from their heartbeats."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from learnloop_api.wire.training import Heartbeat
from learnloop_dataplane.metrics import Metrics


def beat(job: str = "runner-1", phase: str = "training", **changes) -> Heartbeat:
    return Heartbeat.model_validate(
        {
            "job": job, "agent": "runner", "attempt": 0, "phase": phase, "step": 50, "total_steps": 100,
            "world_size": 1, "steps_per_second": 40.0, "at": datetime.now(UTC),
        } | changes
    )  # fmt: skip


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"namespace": "team", **labels})


def test_a_run_tells_what_its_learner_and_its_process_do() -> None:
    metrics = Metrics()
    figures = {"loss": 0.5, "cpu_utilization": 0.9, "action_share_1": 0.25}
    metrics.runs.beat("team", beat(figures=figures))
    assert value(metrics, "training_throughput", training_job="runner-1") == 40.0
    assert value(metrics, "learnloop_training_progress_ratio", training_job="runner-1") == 0.5
    assert value(metrics, "learnloop_training_loss", training_job="runner-1") == 0.5
    assert value(metrics, "resource_utilization", training_job="runner-1", resource="cpu") == 0.9
    assert value(metrics, "learnloop_training_action_ratio", training_job="runner-1", action="1") == 0.25


def test_what_a_run_does_not_tell_any_more_is_not_shown_any_more() -> None:
    metrics = Metrics()
    metrics.runs.beat("team", beat(figures={"epsilon": 0.5, "loss": 1.0}))
    metrics.runs.beat("team", beat(figures={"loss": 2.0}))
    assert value(metrics, "learnloop_training_epsilon", training_job="runner-1") is None
    assert value(metrics, "learnloop_training_loss", training_job="runner-1") == 2.0


@pytest.mark.parametrize("phase", ["done", "failed"])
def test_the_series_of_a_run_end_with_it_and_how_it_learned_stays_with_its_agent(phase: str) -> None:
    metrics = Metrics()
    metrics.runs.beat("team", beat(figures={"loss": 1.0}))
    metrics.runs.beat("team", beat(phase=phase, figures={"samples_to_convergence": 30.0, "convergence": 0.9}))
    assert value(metrics, "training_throughput", training_job="runner-1") is None
    assert value(metrics, "learnloop_training_loss", training_job="runner-1") is None
    assert value(metrics, "learning_efficiency", agent="runner") == 30.0
    assert value(metrics, "model_convergence", agent="runner") == 0.9


def test_a_figure_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="no figure of training"):
        beat(figures={"my_own": 1.0})
