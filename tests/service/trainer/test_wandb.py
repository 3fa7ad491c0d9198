"""The client of Weights & Biases takes a run's curves, with no server and with one that is away."""

import time
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.kinds.training.tracking import Wandb
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_trainer.tracking import Ending, Tracker, tracker
from learnloop_trainer.tracking.services import Identity, TensorBoard, WeightsAndBiases
from learnloop_trainer.training_order import Order
from testing.wandb_files import history, records

STEP = WeightsAndBiases.STEP
SPEC = {
    "algorithm": "ppo",
    "hyperparameters": {"horizon": 8},
    "totalSteps": 4096,
    "seed": 3,
    "data": {"environment": "CartPole-v1"},
}


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads its environment; what a test sets there ends with it."""
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ERROR_REPORTING", "WANDB_SILENT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def order(directory: Path, **changed: Any) -> Order:
    wish = {"mode": "offline", "project": "poles", "directory": str(directory)}
    spec = TrainingJobSpec.model_validate({**SPEC, "tracking": {"wandb": wish}, **changed})
    return Order(job="small-1", spec=spec)


def ended(curves: Tracker, how: Ending) -> None:
    """As the trainer ends it; and, unlike there, however long the client takes on a busy machine."""
    curves.finish(how)
    for thread in curves.threads:
        thread.join(120)


def files(directory: Path) -> list[Path]:
    """In the order of their ends: the names of two runs within a second are ordered by their ids."""
    return sorted(directory.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)


def test_its_files_hold_the_points_by_step_the_parameters_and_the_end_and_nothing_of_the_machine(
    tmp_path: Path,
) -> None:
    curves = tracker(order(tmp_path), {}, "team-a")
    curves.note(64, {"train/return_mean": 1.5, "train/return_iqm": float("nan")})
    curves.note(32, {"train/return_mean": 0.5})
    ended(curves, "FAILED")
    [path] = files(tmp_path)
    points = [{name: value for name, value in point.items() if not name.startswith("_")} for point in history(path)]
    assert points == [{"train/return_mean": 1.5, STEP: 64}, {"train/return_mean": 0.5, STEP: 32}]
    told = {record.WhichOneof("record_type"): record for record in records(path)}
    configured = {item.key: item.value_json for item in told["run"].run.config.update}
    assert (told["run"].run.project, told["run"].run.display_name) == ("poles", "small-1")
    assert (configured["algorithm"], configured["ppo.horizon"], configured["job"]) == (
        '"ppo"',
        '"8"',
        '"team-a/small-1"',
    )
    assert told["exit"].exit.exit_code == 1
    assert not {"environment", "stats", "output", "output_raw"} & set(told), "what the machine is, was told"
    steps = {
        record.metric.glob_name: record.metric.step_metric for record in records(path) if record.HasField("metric")
    }
    assert steps["*"] == STEP


def test_an_interrupted_job_goes_on_with_its_run_and_another_recipe_is_another(tmp_path: Path) -> None:
    for changed in ({}, {}, {"seed": 9}):
        curves = tracker(order(tmp_path, **changed), {}, "team-a")
        curves.note(64, {"train/return_mean": 1.0})
        ended(curves, "FINISHED")
    first, again, other = [next(r.run.run_id for r in records(path) if r.HasField("run")) for path in files(tmp_path)]
    assert first == again != other


def test_a_server_that_is_away_costs_no_other_backend_and_the_process_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    wish = Wandb(base_url="http://127.0.0.1:9", project="p", directory=str(tmp_path / "w"))
    away = WeightsAndBiases(wish, "small-1", Identity("team-a/small-1", "digest", {}))
    curves = Tracker([away, TensorBoard(tmp_path / "board")])
    began = time.monotonic()
    curves.note(64, {"train/return_mean": 1.0})
    curves.finish("FINISHED")
    assert time.monotonic() - began < 60
    curves.threads[1].join(60)
    assert list((tmp_path / "board").iterdir()), "TensorBoard had to wait for another"
    for thread in curves.threads:
        thread.join(60)
    said = capfd.readouterr().out
    assert "Weights & Biases does not take the curves, training goes on: http://127.0.0.1:9" in said
    assert "0" * 40 not in said
    began = time.monotonic()
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        away.write([(1, 0.0, {"a": 1.0})])
    assert time.monotonic() - began < 1, "it asked again at once, and left another folder"
