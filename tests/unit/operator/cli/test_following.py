"""A report counts what ended; a pipeline fails where the gates do."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from learnloop_api.names import LABEL_AGENT
from learnloop_api.wire.deployment import ModelDeployed
from learnloop_operator.cli import reporting
from learnloop_operator.cli.main import main
from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.pipelines import train
from testing.command_line import typed

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
FIGURES = {"episodes": 100, "mean": 480.0, "iqm": 481.0, "ciLow": 470.0, "ciHigh": 490.0}


def body(kind: str, name: str, ready: str = "", **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "reason": "Told", "message": ready}]
    return {
        "kind": kind,
        "metadata": {"name": name, "labels": {LABEL_AGENT: "la"}},
        "spec": {"algorithm": "ppo", "training": {"template": {}}},
        "status": {"conditions": conditions, **status},
    }


def ended(number: int, phase: str, hours: float = 1.0, **status: Any) -> dict[str, Any]:
    at = (NOW - timedelta(hours=hours)).isoformat()
    return body("TrainingJob", f"la-{number}", f"{phase} because", phase=phase, finishedAt=at, **status)


def changed(event: str, revision: str, hours: float, previous: str | None = "aaaaaaaa", **more: str) -> dict[str, Any]:
    return {
        "event": event,
        "model_deployment": "la",
        "uri": "uniform://discrete/2?observations=4",
        "revision": revision,
        "previous_revision": previous,
        "deployed_at": (NOW - timedelta(hours=hours)).isoformat(),
        **more,
    }


def test_a_report_has_gains_with_intervals_refusals_rollbacks_and_what_waits() -> None:
    old = {**FIGURES, "mean": 400.0, "ciLow": 390.0, "ciHigh": 410.0}
    jobs = [ended(1, "Validated", evaluation=FIGURES, baseline=old), ended(2, "Failed"), ended(3, "Failed", hours=200)]
    rollouts = [body("ModelDeployment", "la", phase="Paused", verdict="waits for approval")]
    record = [
        changed("rolled_back", "bad0bad0", 2, verdict="return 9.5 vs 480"),
        changed("deployed", "bbbbbbbb", 3, verdict="all checks pass"),
        changed("deployed", "aaaaaaaa", 4, None),
    ]
    events = map(ModelDeployed.model_validate, record)
    found = reporting.report_data("ns", None, jobs, rollouts, events, NOW - timedelta(days=7), NOW)
    assert [item["run"] for item in found["runs"]] == ["la-1", "la-2"]
    text = reporting.markdown(found)
    assert "1 of 2 runs was proven, 1 promotion, 1 rollback, 1 waiting for a person." in text
    assert "held-out return 480.0 [470.0, 490.0], 80.0 more than 400.0 [390.0, 410.0] before" in text
    assert "**la-2**: Failed because" in text
    assert "**la** bad0bad0: return 9.5 vs 480" in text
    assert "**la** bbbbbbbb: all checks pass" in text
    assert "(`kubectl learnloop approve la -n ns`)" in text


class Recorded:
    """A cluster with an agent, and a data plane that keeps its record in pages."""

    namespace = "ns"

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages = pages

    def every(self, plural: str) -> list[Any]:
        by_hand = ended(9, "Failed")
        by_hand["metadata"] = {"name": "la-byhand"}
        # The next candidate came since, and the blocked one was tried again: the status remembers neither.
        rollout = body("ModelDeployment", "la", phase="Progressing")
        return [ended(1, "Validated"), by_hand] if plural == "trainingjobs" else [rollout]

    def token(self, account: str, audience: str) -> str:
        return "token"

    def forward(self, service: str) -> Any:
        def send(method: str, path: str, query: dict[str, str], *_: object) -> tuple[int, str]:
            assert (method, path) == ("GET", "/api/v1/models/la/deployed")
            number = int(query.get("after", "0"))
            more = str(number + 1) if number + 1 < len(self.pages) else None
            return 200, json.dumps({"deployed": self.pages[number], "next": more})

        return send


def reported(cluster: Recorded, since: str) -> dict[str, Any]:
    return dict(json.loads(typed(cluster, "report", "la", "--since", since, "--output", "json")))


def test_a_report_counts_what_is_on_record_and_no_longer_in_the_status() -> None:
    now = datetime.now(UTC)
    ago = [(NOW - now + timedelta(hours=hours)).total_seconds() / 3600 for hours in (1, 2, 3, 40)]
    cluster = Recorded(
        [changed("deployed", "cccccccc", ago[0]), changed("rolled_back", "bad0bad0", ago[1])],
        [changed("deployed", "bbbbbbbb", ago[2]), changed("rolled_back", "badbadba", ago[3])],
    )
    found = reported(cluster, "day")
    assert [item["revision"] for item in found["promoted"]] == ["bbbbbbbb", "cccccccc"]
    assert [item["revision"] for item in found["rolledBack"]] == ["bad0bad0"]
    assert len(reported(cluster, "week")["rolledBack"]) == 2


def test_a_report_of_an_agent_has_its_own_runs_and_none_that_is_only_called_so() -> None:
    assert [item["run"] for item in reported(Recorded([]), "all")["runs"]] == ["la-1"]


class Pipeline:
    """A cluster in which the run that was asked for ends at the third look."""

    namespace = "ns"

    def __init__(self, phase: str) -> None:
        self.looks, self.phase, self.asked = 0, phase, False

    def user(self) -> str:
        return "ci"

    def get(self, plural: str, name: str) -> dict[str, Any]:
        return body("LearningAgent", name, trainings=6 + self.asked)

    def annotate(self, plural: str, name: str, values: Any) -> None:
        self.asked = True

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        assert name == "la-7", "the run that was asked for, and no older one"
        self.looks += 1
        gates = [{"name": "minReturn", "passed": self.phase == "Validated", "message": "3 < 400 & no"}]
        done = ended(7, self.phase, gates=gates, artifact={"uri": "learnloop://ns/1"})
        return done if self.looks > 2 else body("TrainingJob", "la-7", phase="Training")


@pytest.mark.parametrize("phase", ["Validated", "Failed"])
def test_a_pipeline_waits_for_the_verdict_and_gets_it_as_junit(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop_operator.cli.pipelines.POLL_SECONDS", 0.01)
    file = tmp_path / "junit.xml"
    options = {"wait": True, "timeout": 30.0, "junit": str(file)}
    if phase == "Validated":
        assert train(Pipeline(phase), "la", **options).startswith("la-7 Validated: ")
    else:
        with pytest.raises(CommandError, match="la-7 Failed: Failed because"):
            train(Pipeline(phase), "la", **options)
    suite = ElementTree.parse(file).getroot()
    assert [case.get("name") for case in suite] == ["run", "minReturn"]
    assert suite.get("failures") == ("0" if phase == "Validated" else "1")


def test_a_run_that_does_not_end_in_time_fails_the_pipeline_and_its_test_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("learnloop_operator.cli.pipelines.POLL_SECONDS", 0.01)
    file = tmp_path / "junit.xml"
    options = {"wait": True, "timeout": 0.0, "junit": str(file)}
    with pytest.raises(CommandError, match="la-7 has not ended in 0"):
        train(Pipeline("Validated"), "la", **options)
    [failure] = ElementTree.parse(file).getroot().iter("failure")
    assert "la-7 has not ended in 0 s" in failure.attrib["message"]
    with pytest.raises(CommandError, match="--junit goes with --wait"):
        train(Pipeline("Validated"), "la", **{"wait": False, "timeout": 0.0, "junit": "x"})


def test_a_pipeline_that_is_killed_or_refused_leaves_no_result_of_an_earlier_run(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    options = {"wait": True, "timeout": 30.0, "junit": str(file)}

    class Interrupted(Pipeline):
        def get(self, plural: str, name: str) -> dict[str, Any]:
            raise KeyboardInterrupt

    class Refused(Pipeline):
        def annotate(self, plural: str, name: str, values: Any) -> None:
            raise CommandError("you may not patch learningagents: ask for the role edit")

    for cluster, raised, said in ((Interrupted, KeyboardInterrupt, "interrupted"), (Refused, CommandError, "may not")):
        file.write_text('<testsuite name="la-6" tests="1" failures="0"/>')
        with pytest.raises(raised):
            train(cluster("Validated"), "la", **options)
        [failure] = ElementTree.parse(file).getroot().iter("failure")
        assert said in failure.attrib["message"]


def test_nothing_is_asked_for_whose_result_cannot_be_written(tmp_path: Path) -> None:
    pipeline = Pipeline("Validated")
    options = {"wait": True, "timeout": 30.0, "junit": str(tmp_path / "missing" / "junit.xml")}
    with pytest.raises(CommandError, match="cannot be written"):
        train(pipeline, "la", **options)
    assert not pipeline.asked


def test_a_run_that_is_deleted_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_operator.cli.pipelines.POLL_SECONDS", 0.01)

    class Deleted(Pipeline):
        def find(self, plural: str, name: str) -> dict[str, Any] | None:
            self.looks += 1
            return body("TrainingJob", name, phase="Training") if self.looks == 2 else None

    options = {"wait": True, "timeout": 10.0, "junit": None}
    with pytest.raises(CommandError, match="la-7 was deleted before it had ended"):
        train(Deleted("Validated"), "la", **options)


@pytest.mark.parametrize("text", ["a word", "- a list", "clusters: 3", "{"])
def test_a_file_that_is_no_kubeconfig_is_one_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    assert main(["--kubeconfig", str(file), "report"]) == 1
    assert capsys.readouterr().err.startswith("error: no usable kubeconfig: ")


def test_a_pipeline_says_why_no_run_begins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("learnloop_operator.cli.pipelines.POLL_SECONDS", 0.01)
    waiting = body("LearningAgent", "la", "RewardPolicy 'walker' is missing: create it", trainings=6)

    class Waits(Pipeline):
        def get(self, plural: str, name: str) -> Any:
            return waiting

    options = {"wait": True, "timeout": 0.05, "junit": None}
    with pytest.raises(CommandError, match="la-7 has not ended"):
        train(Waits("Validated"), "la", **options)
    said = "la has not begun a run: RewardPolicy 'walker' is missing: create it\n"
    assert capsys.readouterr().err == said, "once"
