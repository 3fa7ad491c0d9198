"""`promote --wait`: a pipeline passes where the revision serves everybody, and fails where it does not."""

from collections.abc import Iterator
from typing import Any

import pytest

from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.steering import promote

CANARY, OLD = {"revision": "aaaaaaaa"}, {"revision": "bbbbbbbb"}
TRIAL = {"phase": "Progressing", "canary": CANARY, "stable": OLD, "step": 1, "weight": 25, "verdict": "holding at 25 %"}
SERVES = {"phase": "Healthy", "stable": CANARY, "verdict": "promoted"}
PIN = {"revision": "aaaaaaaa", "message": "return 9 vs 480"}


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


def test_a_rollout_that_does_not_end_in_time_fails_it_with_the_fix() -> None:
    with pytest.raises(CommandError, match=r"has not ended in 0 s; give --timeout more seconds"):
        promoted(Rollout(TRIAL), timeout=0.0)


def test_a_winner_of_an_experiment_is_waited_for_while_its_arms_play() -> None:
    arms = [
        {"name": "stable", "revision": "bbbbbbbb", "standing": "playing"},
        {"name": "bold", "revision": "aaaaaaaa", "standing": "playing"},
    ]
    won = {"stable": OLD, "experiment": {"phase": "Won", "winner": "bold", "arms": arms}}
    cluster = Rollout(won, SERVES)
    cluster.status = won
    assert promoted(cluster).startswith("aaaaaaaa serves everybody")
