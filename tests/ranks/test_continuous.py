"""A rank that stays: real processes, and a store in a folder."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learnloop_api.kinds.training.evaluation import EPISODES_PER_RUN

Launch = Callable[..., Any]


def order_update(folder: Path, number: int, serving: dict[str, Any], *, goes_on: bool = True) -> None:
    policy = {"baseline_uri": serving["artifact_uri"], "baseline_sha256": serving["artifact_sha256"]}
    (folder / "update.new").write_text(json.dumps({"number": number, "goes_on": goes_on, **policy}))
    (folder / "update.new").rename(folder / "update.json")


def proof_of(rank: Any, folder: Path, number: int) -> dict[str, Any]:
    """Wait for the proof of this update."""

    def proof() -> dict[str, Any]:
        path = folder / "proof.json"
        return json.loads(path.read_text()) if path.exists() else {"update": -1}

    rank.wait_until(lambda: proof()["update"] == number)
    return proof()


def test_a_rank_that_stays_makes_updates_from_where_it_was_and_a_kill_loses_nothing(
    launch: Launch, small: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    order = small(continuous={"steps": 512, "maxKl": 0.5}, evaluation={"episodes": 8, "firstEpisode": 100})
    folder = tmp_path / "store/runs/small-1"
    rank = launch(order)
    run = proof_of(rank, folder, 0)
    order_update(folder, 1, run)
    first = proof_of(rank, folder, 1)
    assert (first["step"], first["baseline_uri"]) == (512, run["artifact_uri"])
    assert first["held_out"]["first"] == 100 + EPISODES_PER_RUN, "no episode judges two updates"
    assert first["seed"] != run["seed"]
    assert 0 < first["kl"] <= 0.5
    assert first["begun_from"] == "the state after update 0"
    points = [point["step"] for point in json.loads((folder / "heartbeat.json").read_text())["curve"]]
    assert points == sorted(set(points)), "the run's own points are not the update's"

    rank.process.kill()
    rank.ended()
    order_update(folder, 2, first)
    second_rank = launch(order | {"attempt": 1})
    second = proof_of(second_rank, folder, 2)
    assert "goes on from the state after update 1" in second_rank.output()
    assert (second["attempts"], second["baseline_sha256"]) == (2, first["artifact_sha256"])
    second_rank.process.kill()
    second_rank.ended()

    third_rank = launch(order | {"attempt": 2})
    third_rank.wait_for("already durable")
    third_rank.wait_for("waits for the next one")
    again = proof_of(third_rank, folder, 2)
    assert again == second | {"attempts": 3}, "proven once, and adopted by the attempt that stands"
    order_update(folder, 3, run, goes_on=False)
    assert proof_of(third_rank, folder, 3)["begun_from"] == run["artifact_uri"]
    assert "goes on from" not in third_rank.output()
    os.kill(third_rank.process.pid, signal.SIGTERM)
    assert third_rank.ended()[0] == 143


def test_training_ends_before_an_update_is_too_far_from_what_serves(
    launch: Launch, small: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    fast = {"environments": 8, "horizon": 64, "epochs": 8, "minibatches": 4, "hidden": [16], "learningRate": 0.01}
    order = small(hyperparameters=fast, continuous={"steps": 20_000, "maxKl": 0.02})
    folder = tmp_path / "store/runs/small-1"
    rank = launch(order)
    order_update(folder, 1, proof_of(rank, folder, 0))
    proof = proof_of(rank, folder, 1)
    assert "the next KL divergence is" in rank.output()
    assert proof["kl"] < 0.1
    assert proof["ended_by_kl"]
    assert proof["step"] < proof["total_steps"], "only the steps of the weights that it has"
