"""What is written at once, and what can wait until something happens."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop_operator.rollout.status import LONGEST_WAIT, can_wait

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def status(**changes: Any) -> dict[str, Any]:
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "NotEnoughData",
        "message": "3 of 20",
        "observedGeneration": 1,
    }
    arm = {"revision": "aaaaaaaa", "uri": "u", "episodes": 3, "readyReplicas": 2}
    made = {"phase": "Progressing", "weight": 10, "step": 0, "verdict": "3 of 20", "stable": arm, "conditions": [ready]}
    return {**made, "stepStartedAt": "2026-01-01T11:50:00Z", **changes}


def test_figures_wait_and_are_told_after_a_minute() -> None:
    more = status(verdict="4 of 20", stepBaseEpisodes=7)
    assert can_wait(status(), more, None, NOW)
    early = datetime(2026, 1, 1, 11, 50, 10, tzinfo=UTC)
    assert can_wait(status(), more, early, early + LONGEST_WAIT - timedelta(seconds=1))
    assert not can_wait(status(), more, early, early + LONGEST_WAIT)


@pytest.mark.parametrize(
    "change",
    [
        {"weight": 25},
        {"phase": "Paused"},
        {"stable": {"revision": "aaaaaaaa", "uri": "u", "readyReplicas": 1}},
        {"stable": {"revision": "aaaaaaaa", "uri": "u", "readyReplicas": 2, "message": "the image is not there"}},
        {"conditions": [{"type": "Ready", "status": "False", "reason": "ProviderDown", "observedGeneration": 1}]},
        {"conditions": [{"type": "Ready", "status": "False", "reason": "NotEnoughData", "observedGeneration": 2}]},
        {"blockedRevision": {"revision": "bbbbbbbb"}},
        {"evidence": [{"name": "success", "verdict": "fine"}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_was_decided_or_went_wrong_is_told_at_once(change: dict[str, Any]) -> None:
    assert not can_wait(status(), status(**change), None, NOW)


def test_a_test_that_has_only_begun_can_wait_and_one_that_lost_its_verdict_cannot() -> None:
    begun, fine = ({"evidence": [{"name": "success", "verdict": verdict}]} for verdict in ("undecided", "fine"))
    assert can_wait(status(), status(**begun), None, NOW)
    assert not can_wait(status(**fine), status(**begun), None, NOW)


def test_the_first_status_is_told_at_once() -> None:
    assert not can_wait({}, status(), None, NOW)


def experiment(**changes: Any) -> dict[str, Any]:
    arm = {"name": "canary", "standing": "playing", "ready": True, "episodes": 40, "mean": 0.5}
    found = {"id": "aaaaaaaa", "phase": "Running", "startedAt": "2026-01-01T11:55:00Z", "message": "canary 0.5"}
    return {**found, "arms": [{**arm, **changes.pop("arm", {})}], **changes}


def test_the_figures_of_an_experiment_wait_too() -> None:
    more = experiment(message="canary 0.6", arm={"episodes": 60, "mean": 0.6, "logBetter": [1.0]})
    assert can_wait(status(experiment=experiment()), status(experiment=more), None, NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Won"},
        {"winner": "canary"},
        {"arm": {"standing": "beaten"}},
        {"arm": {"ready": False}},
    ],
    ids=str,
)
def test_what_an_experiment_decided_is_told_at_once(change: dict[str, Any]) -> None:
    assert not can_wait(status(experiment=experiment()), status(experiment=experiment(**change)), None, NOW)
