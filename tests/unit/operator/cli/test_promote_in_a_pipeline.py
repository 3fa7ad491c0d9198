"""`promote --wait`: a pipeline passes where the revision serves everybody, and fails where it does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.pipelines import Case, junit
from learnloop_operator.cli.steering import promote

CANARY, OLD = {"revision": "aaaaaaaa"}, {"revision": "bbbbbbbb"}
TRIAL = {"phase": "Progressing", "canary": CANARY, "stable": OLD, "step": 1, "weight": 25, "verdict": "holding at 25 %"}
SERVES = {"phase": "Healthy", "stable": CANARY, "verdict": "promoted"}
PIN = {"revision": "aaaaaaaa", "message": "return 9 vs 480"}
FOUND = {
    "gates": {
        "revision": "aaaaaaaa",
        "suites": [{"name": "refusal", "verdict": "failed", "message": "12 of 300 were not refused"}],
    },
    "evidence": [
        {"name": "return", "claim": "not 20 % less", "verdict": "undecided"},
        {"name": "errors", "claim": "at most 5 %", "verdict": "worse"},
    ],
}


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_operator.cli.pipelines.POLL_SECONDS", 0.001)


class Rollout:
    """A ModelDeployment whose status is the next of `statuses` at each look; the last one stays."""

    namespace = "ns"

    def __init__(self, *statuses: dict[str, Any] | None, outcome: str = "obeyed") -> None:
        self.coming: Iterator[dict[str, Any] | None] = iter(statuses)
        self.status: dict[str, Any] | None = dict(TRIAL)
        self.outcome, self.value = outcome, ""

    def user(self) -> str:
        return "ci"

    def annotate(self, plural: str, name: str, values: Any) -> None:
        (self.value,) = values.values()

    def get(self, plural: str, name: str) -> dict[str, Any]:
        body = self.find(plural, name)
        assert body is not None
        return body

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        if self.value:
            self.status = next(self.coming, self.status)
        if self.status is None:
            return None
        answer = {"value": self.value, "outcome": self.outcome, "message": "a check is breached"}
        answered = self.status.get("answered", True) and self.value
        decisions = [answer] if answered else [{**answer, "value": "aaaaaaaa at an earlier time"}]
        return {"metadata": {"name": name}, "status": {**self.status, "decisions": decisions}}


def promoted(cluster: Rollout, **options: Any) -> str:
    return promote(cluster, "la", **{"wait": True, "timeout": 30.0} | options)


def test_it_waits_until_the_revision_serves_everybody_and_says_each_verdict_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unanswered = {**SERVES, "answered": False}
    assert promoted(Rollout(TRIAL, unanswered, TRIAL, SERVES)) == "aaaaaaaa serves everybody: promoted"
    assert capsys.readouterr().err.splitlines() == [
        "la Progressing: holding at 25 %",
        "la Healthy: promoted",
        "la Progressing: holding at 25 %",
    ], "an answer to an older order ends nothing"


@pytest.mark.parametrize(
    ("last", "outcome", "sentence"),
    [
        ({"stable": OLD, "blockedRevisions": [PIN]}, "obeyed", "aaaaaaaa was rolled back: return 9 vs 480"),
        (TRIAL, "refused", "refused: a check is breached"),
        ({"stable": OLD, "canary": {"revision": "cccccccc"}, "verdict": "replaced"}, "obeyed", "not on trial any more"),
        (None, "obeyed", "was deleted before the rollout of aaaaaaaa had ended"),
    ],
)
def test_whatever_else_becomes_of_it_fails_the_pipeline(
    last: dict[str, Any] | None, outcome: str, sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        promoted(Rollout(TRIAL, last, outcome=outcome) if outcome == "obeyed" else Rollout(last, outcome=outcome))


def test_a_rollout_that_does_not_end_in_time_fails_it_and_its_test_case_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "rollout.xml"
    with pytest.raises(CommandError, match=r"has not ended in 0 s; give --timeout more seconds"):
        promoted(Rollout(TRIAL), timeout=0.0, junit=str(file))
    assert 'failures="1"' in file.read_text()


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_refused_before_anything_is_asked_for(timeout: float) -> None:
    cluster = Rollout(TRIAL)
    with pytest.raises(CommandError, match="--timeout"):
        promoted(cluster, timeout=timeout)
    assert not cluster.value


def test_a_winner_of_an_experiment_is_waited_for_while_its_arms_play() -> None:
    arms = [
        {"name": "stable", "revision": "bbbbbbbb", "standing": "playing"},
        {"name": "bold", "revision": "aaaaaaaa", "standing": "playing"},
    ]
    won = {"stable": OLD, "experiment": {"phase": "Won", "winner": "bold", "arms": arms}}
    cluster = Rollout(won, SERVES)
    cluster.status = won
    assert promoted(cluster).startswith("aaaaaaaa serves everybody")


def test_junit_has_the_rollout_its_suites_and_its_metrics(tmp_path: Path) -> None:
    file = tmp_path / "rollout.xml"
    with pytest.raises(CommandError, match="rolled back"):
        promoted(Rollout(TRIAL, {"stable": OLD, "blockedRevisions": [PIN], **FOUND}), junit=str(file))
    suite = ElementTree.parse(file).getroot()
    failed = {case.get("name"): case.find("failure") is not None for case in suite}
    assert failed == {"rollout": True, "gate refusal": True, "metric return": False, "metric errors": True}
    assert suite.get("failures") == "3"
    with pytest.raises(CommandError, match=r"--junit .* cannot be written: No such file or directory"):
        promoted(Rollout(SERVES), junit=str(tmp_path / "none" / "rollout.xml"))


def test_junit_is_xml_whatever_a_sentence_holds() -> None:
    text = junit("la", [Case("a<&\x00", False, "\x1b[31m \ud800 ü")])
    (case,) = ElementTree.fromstring(text.encode())
    assert case.get("name") == "a<&\ufffd"
