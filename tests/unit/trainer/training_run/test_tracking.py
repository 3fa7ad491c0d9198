"""Curves come out at TensorBoard and MLflow as they went in, and no trouble with either reaches the training."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from learnloop_trainer.tracking import Feed, Identity, Mlflow, MlflowError, TensorBoard, Tracker, tracker
from learnloop_trainer.training_order import Order
from testing.servers.mlflow_server import MlflowServer, mlflow_server

Make = Callable[..., Order]
RUN = Identity("team-a/small-1", "digest", {})


def events(directory: Path) -> Iterator:
    """All events in the files of a folder: length, its checksum, the event, its checksum (TFRecord)."""
    for path in sorted(directory.glob("events.out.tfevents.*")):
        body, at = path.read_bytes(), 0
        while at < len(body):
            (length,) = struct.unpack_from("<Q", body, at)
            yield Event.FromString(body[at + 12 : at + 12 + length])
            at += length + 16


def scalars(directory: Path) -> dict[tuple[str, int], float]:
    return {(value.tag, event.step): value.simple_value for event in events(directory) for value in event.summary.value}


@pytest.fixture
def server() -> Iterator[MlflowServer]:
    with mlflow_server() as running:
        yield running


def tracked(make_order: Make, **tracking) -> Order:
    return make_order(tracking=tracking)


def test_tensorboard_reads_back_the_points_and_strikes_out_what_a_lost_attempt_wrote(tmp_path: Path) -> None:
    first = TensorBoard(tmp_path)
    first.write([(100, 1.0, {"train/return_mean": 5.0}), (200, 2.0, {"train/return_mean": 6.0})])
    second = TensorBoard(tmp_path)
    second.write([(150, 3.0, {"train/return_mean": 7.0})])
    second.end("FINISHED")
    assert scalars(tmp_path) == {
        ("train/return_mean", 100): 5.0,
        ("train/return_mean", 150): 7.0,
        ("train/return_mean", 200): 6.0,
    }
    starts = [event.step for event in events(tmp_path) if event.session_log.status == event.session_log.START]
    assert starts[-1] == 150, "readers leave out what was written before from this step on"


def test_mlflow_gets_one_run_with_parameters_points_and_its_end(make_order: Make, server: MlflowServer) -> None:
    order = tracked(make_order, mlflow={"trackingUri": server.url, "experiment": "poles"})
    curves = tracker(order, {"MLFLOW_TRACKING_TOKEN": "secret"}, "team-a")
    curves.note(64, {"train/return_mean": 1.5, "train/return_iqm": float("nan")})
    curves.finish("FINISHED")
    (run,) = server.runs.values()
    assert run["info"]["experiment_id"] == server.experiments["poles"]
    assert (run["info"]["status"], run["info"]["run_name"]) == ("FINISHED", "small-1")
    assert [(m["key"], m["value"], m["step"]) for m in run["metrics"]] == [("train/return_mean", 1.5, 64)]
    assert run["params"]["algorithm"] == "ppo"
    assert run["params"]["ppo.horizon"] == "8"
    assert set(server.authorization) == {"Bearer secret"}


def test_an_interrupted_job_goes_on_with_its_run_and_a_finished_one_gets_a_new_one(make_order, server):
    environ = {"MLFLOW_TRACKING_URI": server.url}
    for step in (64, 128):  # the process before is gone without a word
        lost = tracker(make_order(), environ, "team-a")
        (feed,) = lost.feeds
        feed.add((step, time.time(), {"train/return_mean": 1.0}))
        feed.write()
    (run,) = server.runs.values()
    assert [metric["step"] for metric in run["metrics"]] == [64, 128]
    other = tracker(make_order(seed=9), environ, "team-a")
    other.note(64, {"train/return_mean": 1.0})
    other.finish("FAILED")
    assert [run["info"]["status"] for run in server.runs.values()] == ["RUNNING", "FAILED"]


def test_a_run_whose_experiment_another_makes_at_the_same_moment_joins_it(server, monkeypatch):
    run, look = Mlflow(server.url, "poles", "b", RUN, {}), Mlflow._call

    def late(self: Mlflow, method: str, path: str, **request) -> dict:
        answer = look(self, method, path, **request)
        if path.endswith("get-by-name") and not answer:
            server.experiments["poles"] = "7"
        return answer

    monkeypatch.setattr(Mlflow, "_call", late)
    feed = Feed(run)
    feed.add((64, 1.0, {"train/return_mean": 1.0}))
    assert not feed.write()
    assert feed.write()
    (made,) = server.runs.values()
    assert made["info"]["experiment_id"] == "7"


def test_many_points_go_in_parts_no_larger_than_the_server_takes(server: MlflowServer) -> None:
    run = Mlflow(server.url, "poles", "a", RUN, {})
    run.write([(step, 0.0, {"a": 1.0, "b": 2.0}) for step in range(1200)])
    (only_run,) = server.runs.values()
    assert len(only_run["metrics"]) == 2400


def test_while_mlflow_is_away_points_wait_and_training_hears_one_sentence(make_order, server, capsys):
    server.away = True
    curves = tracker(make_order(), {"MLFLOW_TRACKING_URI": server.url}, "")
    (feed,) = curves.feeds
    for step in (64, 128):
        feed.add((step, 1.0, {"train/return_mean": 1.0}))
        feed.write()
    server.away = False
    feed.write()
    (run,) = server.runs.values()
    assert [metric["step"] for metric in run["metrics"]] == [64, 128]
    output = capsys.readouterr().out
    assert output.count("does not take the curves, training continues") == 1
    assert "takes the curves again" in output


def test_a_backend_that_is_broken_for_good_costs_a_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    curves = Tracker([TensorBoard(tmp_path / "file" / "below"), Mlflow("http://127.0.0.1:9", "e", "r", RUN, {})])
    began = time.monotonic()
    curves.note(1, {"a": 1.0})
    curves.finish("FAILED")
    assert time.monotonic() - began < 120, "it waited for what will never be there"


def test_an_answer_that_is_not_mlflows_is_named(server: MlflowServer) -> None:
    with pytest.raises(MlflowError, match=r"404 .*endpoint_not_found"):
        Mlflow(server.url, "e", "r", RUN, {})._call("GET", "registered-models")
