"""`train --wait`: a pipeline fails where the gates do."""

from datetime import UTC, datetime, timedelta

import pytest

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.names import LABEL_AGENT
from learnloop_operator.cli.cluster import refusal, unreachable
from learnloop_operator.cli.engine_check import engine
from learnloop_operator.cli.main import main
from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.steering_verbs import train

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def body(kind: str, name: str, ready: str = "", **status) -> dict:
    conditions = [{"type": "Ready", "status": "True", "reason": "Told", "message": ready}]
    return {
        "kind": kind,
        "metadata": {"name": name, "labels": {LABEL_AGENT: "la"}},
        "spec": {"algorithm": "ppo", "training": {"template": {}}},
        "status": {"conditions": conditions, **status},
    }


def ended(number: int, phase: str, hours: float = 1.0, **status) -> dict:
    at = (NOW - timedelta(hours=hours)).isoformat()
    return body("TrainingJob", f"la-{number}", f"{phase} because", phase=phase, finishedAt=at, **status)


class Pipeline:
    """A cluster in which the run that was asked for ends at the third look."""

    namespace = "ns"

    def __init__(self, phase: str) -> None:
        self.looks, self.phase, self.is_annotated = 0, phase, False

    def user(self) -> str:
        return "ci"

    def get(self, plural: str, name: str) -> dict:
        return body("LearningAgent", name, trainings=6 + self.is_annotated)

    def annotate(self, plural: str, name: str, values) -> None:
        self.is_annotated = True

    def find(self, plural: str, name: str) -> dict | None:
        assert name == "la-7", "the run that was asked for, and no older one"
        self.looks += 1
        gates = [{"name": "minReturn", "passed": self.phase == "Validated", "message": "3 < 400 & no"}]
        done = ended(7, self.phase, gates=gates, artifact={"uri": "learnloop://ns/1"})
        return done if self.looks > 2 else body("TrainingJob", "la-7", phase="Training")


@pytest.mark.parametrize("phase", ["Validated", "Failed"])
def test_a_pipeline_waits_for_the_verdict(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_operator.cli.steering_verbs.POLL_SECONDS", 0.01)
    options = {"wait": True, "timeout": 30.0}
    if phase == "Validated":
        assert train(Pipeline(phase), "la", **options).startswith("la-7 Validated: ")
    else:
        with pytest.raises(CommandError, match="la-7 Failed: Failed because"):
            train(Pipeline(phase), "la", **options)


def test_a_run_that_does_not_end_in_time_fails_the_pipeline() -> None:
    with pytest.raises(CommandError, match="la-7 has not ended in 0"):
        train(Pipeline("Validated"), "la", wait=True, timeout=0.0)
    assert main(["train", "la", "--wait", "--timeout", "-1"]) == 2


def test_a_run_that_is_deleted_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_operator.cli.steering_verbs.POLL_SECONDS", 0.01)

    class Deleted(Pipeline):
        def find(self, plural: str, name: str) -> dict | None:
            self.looks += 1
            return body("TrainingJob", name, phase="Training") if self.looks == 2 else None

    options = {"wait": True, "timeout": 10.0}
    with pytest.raises(CommandError, match="la-7 was deleted before it had ended"):
        train(Deleted("Validated"), "la", **options)


def test_a_pipeline_says_why_no_run_begins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("learnloop_operator.cli.steering_verbs.POLL_SECONDS", 0.01)
    waiting = body("LearningAgent", "la", "RewardPolicy 'walker' is missing:\ncreate it", trainings=6)

    class Waits(Pipeline):
        def get(self, plural: str, name: str):
            return waiting

        def find(self, plural: str, name: str) -> None:
            return None

    options = {"wait": True, "timeout": 0.05}
    with pytest.raises(CommandError, match="la-7 has not ended"):
        train(Waits("Validated"), "la", **options)
    output = "la has not begun a run: RewardPolicy 'walker' is missing: create it\n"
    assert capsys.readouterr().err == output, "once, on one line"


@pytest.mark.parametrize("status", [None, 429, 503])
def test_a_pipeline_outlives_an_api_server_that_is_away(status, monkeypatch, capsys):
    monkeypatch.setattr("learnloop_operator.cli.steering_verbs.POLL_SECONDS", 0.01)

    class Away(Pipeline):
        def find(self, plural: str, name: str) -> dict | None:
            if self.looks == 1:
                self.looks += 1
                raise unreachable("cut off") if status is None else refusal(status, "no")
            return super().find(plural, name)

    assert train(Away("Validated"), "la", wait=True, timeout=30.0).startswith("la-7 Validated: ")
    printed = capsys.readouterr().err.splitlines()
    assert [line.startswith("the API server") for line in printed] == [False, True], "each is printed once"


def test_an_engine_is_checked_by_a_run_that_leaves_nothing() -> None:
    class Rig(Pipeline):
        def create(self, _: str, job: dict) -> None:
            self.job = TrainingJobSpec.model_validate(job["spec"])

        def find(self, plural: str, name: str) -> dict:
            return ended(1, self.phase, step=2040)

        get = find

        def delete(self, _: str, name: str) -> None:
            self.is_annotated = name.startswith("engine-check-")

    good, bad = Rig("Validated"), Rig("Failed")
    assert "own:1 keeps to" in engine(good, "check", "own:1", ["own"])
    with pytest.raises(CommandError, match=r"own:1 does not keep to .*Failed because"):
        engine(bad, "check", "own:1", ["own"])
    assert (good.is_annotated, bad.is_annotated) == (True, True), "the job is deleted"
    with pytest.raises(CommandError, match=r"^engine-check-.* has not ended in 0 s"):
        engine(Rig("Training"), "check", "own:1", ["own"], timeout=0.0)
