"""Figures of learners and their process, in heartbeats and curves."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from learnloop_api.wire.training import Heartbeat, is_figure
from learnloop_trainer.distributed import Alone
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.tracking import LearningCurve, ProcessFigures, Tracker
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.reported_figures import ActionTally, learner_figures

Make = Callable[..., Order]
ALWAYS = {"learning_rate", "gradient_norm", "episode_length"}
FIGURES = {
    "ppo": ALWAYS | {"policy_loss", "value_loss", "value", "entropy", "kl_divergence"},
    "dqn": ALWAYS | {"loss", "epsilon", "replay_transitions"},
}


class Curves(Tracker):
    """Points of curves."""

    def __init__(self) -> None:
        super().__init__(())
        self.points: list[dict[str, float]] = []

    def note(self, step: int, values) -> None:
        self.points.append(dict(values))


class Sent:
    """A store that keeps heartbeats."""

    def __init__(self) -> None:
        self.beats: list[Heartbeat] = []

    def heartbeat(self, beat: Heartbeat) -> None:
        self.beats.append(beat)


@pytest.mark.parametrize("algorithm", sorted(FIGURES))
def test_a_learner_tells_what_it_has(algorithm: str, make_order: Make) -> None:
    order = make_order(algorithm)
    training = begin(order, Alone(), torch.device("cpu"))
    tally, losses, result = ActionTally(), dict[str, float](), dict[str, float]()
    for _ in range(200):
        training.observation, experiences = training.learner.iterate(training.observation)
        for experience in experiences:
            tally.note(experience.actions, training.environment.actions)
            losses |= experience.losses
            training.episodes.note(experience.reward, experience.ended)
        result = learner_figures(training.learner, order.spec.total_steps, losses) | training.episodes.figures()
        if FIGURES[algorithm] <= set(result):
            break
    assert FIGURES[algorithm] <= set(result)
    assert all(is_figure(name) for name in result)
    assert result["gradient_norm"] > 0.0
    assert result["episode_length"] == pytest.approx(sum(training.recent) / len(training.recent))  # 1 a step
    shares = tally.take()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert set(shares) == {"action_share_0", "action_share_1"}
    assert tally.take() == {}, "it restarts"


def test_what_is_told_comes_with_the_heartbeat_and_goes_to_the_curves(make_order: Make) -> None:
    tracker, sent = Curves(), Sent()
    reporter = Reporter(make_order(), Place(), sent, tracker)
    reporter.progress(64, [1.0, 2.0], {"policy_loss": 3.0}, [1.0, 2.0], figures=lambda: {"entropy": 0.5})
    reporter.finish("done", "over")
    (beat,) = sent.beats
    assert beat.figures["entropy"] == 0.5
    assert beat.figures["memory_bytes"] > 1e6
    assert beat.returns == [1.0, 2.0]
    assert tracker.points[0]["train/entropy"] == 0.5
    assert tracker.points[0]["train/memory_bytes"] == beat.figures["memory_bytes"]


def test_what_a_run_was_busy_with_before_its_steps_is_over_with_the_first_of_them(make_order: Make) -> None:
    reporter = Reporter(make_order(), Place(), Sent())
    reporter.phase("training", "cql from step 0")
    for busy in (reporter.reading, reporter.alive):
        busy("reads the log: page 606")
        assert reporter._beat().message == "reads the log: page 606"
        reporter.alive()
        assert reporter._beat().message == "reads the log: page 606"
        reporter.progress(64, deque([1.0]))
        assert reporter._beat().message == "cql from step 0"
    reporter.alive("validation: 2/20 episodes")
    reporter.phase("exporting", "building the ONNX graph")
    assert reporter._beat().message == "building the ONNX graph"


def test_a_step_that_falls_is_no_negative_speed(make_order: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, now = Reporter(make_order(), Place(), Sent()), iter(range(99))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    for step in (64, 32):
        reporter.progress(step, deque([1.0]))
    assert reporter._beat().steps_per_second == 0.0


def test_a_process_tells_its_share_of_what_its_cgroup_allows(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "proc/self/statm").write_text("900 512 1 1 0 1 0\n")
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{4096 * 2048}\n")
    now, used = [0.0], [0.0]
    figures = ProcessFigures(2.0, tmp_path, lambda: now[0], lambda: used[0])
    now[0], used[0] = 10.0, 5.0
    result = figures.look()
    assert result["cpu_utilization"] == 0.25
    assert result["memory_utilization"] == pytest.approx(result["memory_bytes"] / (4096 * 2048))


def test_a_process_with_a_gpu_tells_how_busy_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cuda = {"is_available": True, "mem_get_info": (30, 40), "memory_reserved": 8, "utilization": 75}
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    result = ProcessFigures(2.0, tmp_path).look()
    gpu = {name: result[name] for name in ("gpu_memory_bytes", "gpu_memory_utilization", "gpu_utilization")}
    assert gpu == {"gpu_memory_bytes": 8.0, "gpu_memory_utilization": 0.25, "gpu_utilization": 0.75}


def test_samples_to_convergence_are_told_once_a_curve_has_settled() -> None:
    curve = LearningCurve()
    for step in range(0, 5000, 100):
        curve.note(step, min(100.0, step / 20.0), 0.0, 0.0)
    assert curve.figures()["samples_to_convergence"] == 1900.0, "95 of 100 at 1,900 of 5,000 steps"
    assert curve.figures()["convergence"] == 1.0
    rising = LearningCurve()
    for step in range(0, 5000, 100):
        rising.note(step, step / 20.0, 0.0, 0.0)
    assert "samples_to_convergence" not in rising.figures()
    assert rising.figures()["convergence"] == pytest.approx(0.75, abs=0.05)


def test_a_curve_goes_on_from_the_step_that_an_attempt_resumes_at() -> None:
    first, second = LearningCurve(), LearningCurve()
    for step in range(0, 20_000, 100):
        first.note(step, step / 20.0, 0.0, 1.0)
    points = first.thinned()
    assert len(points) <= 64
    assert (points[-1].step, points[-1].high) == (19_900, 1.0)
    second.resume(points)
    second.note(10_000, 7.0, 0.0, 1.0)
    steps = [point.step for point in second.thinned()]
    assert steps == sorted({step for step in steps if step < 10_000} | {10_000})
    assert len(steps) > 20
