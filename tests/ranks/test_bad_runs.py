"""A fault is explained in one sentence, where the kubelet and the run's record find it.

The last good checkpoint stays. The operator puts the sentence in the termination log into the TrainingJob's status.
"""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.wire.training import Heartbeat
from learnloop_trainer.store.run_store import DirectoryStore

Launch = Callable[..., Any]
Small = Callable[..., dict[str, Any]]
NEVER, COUNTED = 2, 70
STEPS = 64 * 4000
OFTEN = {"checkpoint": {"everySeconds": 1}}
ENVIRONMENTS = Path(__file__).parents[2] / "testing/training"
WORLDS = {"PYTHONPATH": os.pathsep.join([str(ENVIRONMENTS), os.environ.get("PYTHONPATH", "")])}


def last_words(tmp_path: Path) -> str:
    """The termination log, which must be one sentence, and the same as the run's last heartbeat says."""
    sentence = (tmp_path / "termination-0").read_text()
    beat = Heartbeat.model_validate_json((tmp_path / "store/runs/small-1/heartbeat.json").read_text())
    assert sentence.count("\n") == 1
    assert (beat.phase, beat.message) == ("failed", sentence.strip())
    return sentence


def listed(run: Path) -> list[dict]:
    """The durable checkpoints of a run, newest first."""
    path = run / "checkpoint.json"
    return json.loads(path.read_text()) if path.exists() else []


@pytest.mark.parametrize(
    ("world", "code", "words"),
    [
        ("NanReward", NEVER, "reward is not finite at step"),
        ("NanObservation", NEVER, "observation: number 0 of it, counted from 0, is not finite at step"),
        ("HugeReward", NEVER, "loss is not finite at step"),
        ("Raises", NEVER, "'faulty_environments:Raises' raised ZeroDivisionError: the simulated plant has no valves"),
        ("Hangs", COUNTED, "'faulty_environments:Hangs' did not return from step"),
        ("WrongSpace", NEVER, "has observations Dict"),
        ("Absent", NEVER, "module faulty_environments has no Absent"),
    ],
)
def test_an_environment_on_a_bad_day_ends_the_run_with_its_reason(launch, small, tmp_path, world, code, words):
    order = small(data={"environment": f"faulty_environments:{world}"}, steps=STEPS)
    ended, output = launch(order, LEARNLOOP_ENVIRONMENT_SECONDS="1", **WORLDS).ended()
    assert ended == code, output
    assert words in last_words(tmp_path)


def test_an_environment_that_raises_costs_an_attempt_and_no_work(launch: Launch, small: Small, tmp_path: Path) -> None:
    """The next attempt goes on from the last good checkpoint; of a changed environment it starts again."""
    order = small(data={"environment": "faulty_environments:Closed"}, steps=STEPS, **OFTEN)
    first = launch(order, **WORLDS)
    pointer = tmp_path / "store/runs/small-1/checkpoint.json"
    first.wait_until(pointer.exists)
    first.process.kill()
    first.ended()
    saved = DirectoryStore(tmp_path / "store", "small-1").checkpoint()
    for _ in range(2):  # an attempt that failed leaves what it began with to the next
        ended, output = launch(order, **WORLDS, LICENCE="expired").ended()
        assert ended == COUNTED, output
        assert f"resuming at step {saved.step}" in output
        assert "raised PermissionError: the licence has expired" in last_words(tmp_path)
        checkpoint = DirectoryStore(tmp_path / "store", "small-1").checkpoint()
        assert checkpoint.step >= saved.step
        saved = checkpoint
    # Another module of the same name: the environment's code was changed, what was learned belongs to another world.
    (tmp_path / "other").mkdir()
    changed = (
        (ENVIRONMENTS / "faulty_environments.py")
        .read_text()
        .replace("observation, reward = np.full(3, 0.5", "observation, reward = np.full(3, 0.25")
    )
    (tmp_path / "other/faulty_environments.py").write_text(changed)
    other = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "other"), os.environ.get("PYTHONPATH", "")])}
    ended, output = launch(order, **other, LICENCE="expired").ended()
    assert ended == COUNTED, output
    assert "the checkpoint cannot be used, starting again" in output
    assert "resuming" not in output


def test_an_unknown_algorithm_is_refused_by_name(launch: Launch, small: Small, tmp_path: Path) -> None:
    order = small()
    order["spec"]["algorithm"] = "a3c"
    ended, output = launch(order).ended()
    assert ended == NEVER, output
    assert (tmp_path / "termination-0").read_text().startswith("spec.algorithm: 'a3c' is refused: input should be")


def test_a_full_disk_is_said_while_training_goes_on_and_the_good_checkpoint_stays(launch, small, tmp_path):
    # Ten times as long: on a fast machine the run would end before the next heartbeat.
    rank = launch(small("dqn", 10 * STEPS, **OFTEN))
    pointer = tmp_path / "store/runs/small-1/checkpoint.json"
    rank.wait_until(pointer.exists)
    # Heartbeats are below it with all their figures and returns, checkpoints with their replay far above.
    resource.prlimit(rank.process.pid, resource.RLIMIT_FSIZE, (32_768, 32_768))
    rank.wait_for("was not saved, training continues")
    step = json.loads(pointer.read_text())[0]["step"]
    heartbeat = tmp_path / "store/runs/small-1/heartbeat.json"
    rank.wait_until(lambda: "File too large" in Heartbeat.model_validate_json(heartbeat.read_text()).message)
    rank.process.kill()
    rank.ended()
    assert not [path for path in pointer.parent.iterdir() if path.name.startswith(".")], "no half file is left"
    again = launch(small("dqn", 10 * STEPS, **OFTEN))
    again.wait_for("resuming at step")
    assert f"resuming at step {step}" in again.output()


@pytest.mark.parametrize("damage", ["truncated", "tampered", "missing"])
def test_of_a_damaged_checkpoint_the_run_goes_back_to_the_one_before(launch, small, tmp_path, damage):
    order, run = small(steps=STEPS, **OFTEN), tmp_path / "store/runs/small-1"
    rank = launch(order)
    rank.wait_until(lambda: len(listed(run)) == 2)
    rank.process.kill()
    rank.ended()
    newest, before = listed(run)
    path = run / f"{newest['sha256']}.safetensors"
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(bytes(body) if damage == "tampered" else bytes(body[:100]))
    second = launch(order)
    second.wait_for("resuming at step")
    assert f"resuming at step {before['step']}" in second.output()
    assert f"checkpoint of step {newest['step']}" in second.output()
    second.process.kill()
    second.ended()


def test_when_every_checkpoint_is_damaged_nothing_is_trained_over_them(launch, small, tmp_path):
    order, run = small(steps=STEPS, **OFTEN), tmp_path / "store/runs/small-1"
    rank = launch(order)
    rank.wait_until(lambda: len(listed(run)) == 2)
    rank.process.kill()
    rank.ended()
    for path in run.glob("*.safetensors"):
        path.write_bytes(b"nonsense")
    ended, output = launch(order).ended()
    assert ended == NEVER, output
    assert "the stored copy is damaged" in last_words(tmp_path)
    assert all(path.read_bytes() == b"nonsense" for path in run.glob("*.safetensors"))
