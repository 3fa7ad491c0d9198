"""The bench of the pipeline tells what it found also where a part of it fails."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench.pipeline import chaos, tenancy
from bench.pipeline.__main__ import run, summary
from bench.pipeline.conformance import holds as document_holds
from bench.pipeline.conformance import operations, summed
from bench.pipeline.redaction import holds


def test_a_part_that_fails_is_named_and_misses_its_goals() -> None:
    found = {"latency": run("no_such_part", [], 60), "redaction": {"planted": 100_000, "leaked_together": 0}}
    result = summary(found, quick=False, seconds=1)
    assert "no figures; it ended with 1" in found["latency"]["error"]
    assert result["failed"] == ["latency"]
    assert (result["secrets_planted"], result["secrets_leaked"]) == (100_000, 0)
    assert {"accepted_http_p99_ms", "reward_p99_ms"} <= set(result["goals_missed"])
    assert "secrets_leaked" not in result["goals_missed"]


@pytest.mark.parametrize(
    ("figures", "failed"),
    [
        ({"lost": 0, "part_exit_code": 0}, []),
        ({"lost": 0, "part_exit_code": 0, "met": True}, []),
        ({"lost": 0, "part_exit_code": 0, "met": False}, ["chaos"]),
        ({"lost": 0, "part_exit_code": 1}, ["chaos"]),
        ({"lost": 0, "part_exit_code": -9, "met": True}, ["chaos"]),
    ],
)
def test_a_part_that_is_not_content_with_itself_has_failed_whatever_its_goals_say(
    figures: dict[str, Any], failed: list[str]
) -> None:
    result = summary({"chaos": figures}, quick=False, seconds=1)
    assert result["failed"] == failed
    assert "lost" not in result["goals_missed"]


def test_the_exit_code_of_a_part_is_among_its_figures() -> None:
    assert run("no_such_part", [], 60)["part_exit_code"] == 1


@pytest.mark.parametrize(
    ("publisher", "consumer", "unstable", "missed"),
    [
        (0, 0, 0, []),
        (1, 0, 0, ["secrets_leaked_by_publisher"]),
        (0, 1, 0, ["secrets_leaked_by_consumer"]),
        (0, 0, 1, ["pseudonyms_unstable"]),
    ],
)
def test_each_side_has_to_keep_the_secrets_alone(
    publisher: int, consumer: int, unstable: int, missed: list[str]
) -> None:
    leaked = {"publisher": publisher, "consumer": consumer, "both": 0, "memory": 0}
    found = {"planted": 100_000, "leaked": leaked, "leaked_together": 0, "unstable": unstable}
    assert summary({"redaction": found}, quick=False, seconds=1)["goals_missed"] == missed
    assert holds(found) is not bool(missed)


def test_an_operation_without_a_request_was_not_checked(tmp_path: Path) -> None:
    expected = operations({"paths": {"/a": {"get": {}, "put": {}, "parameters": []}, "/b": {"get": {}}}})
    scenarios = [("GET /a", "fuzzing", 2), ("PUT /a", "coverage", 1), ("GET /b", "fuzzing", 0), ("any", "stateful", 3)]
    report = tmp_path / "events.ndjson"

    def written(count: int) -> dict[str, Any]:
        recorders = [
            (phase, {"label": label, "cases": dict.fromkeys(map(str, range(n)))}) for label, phase, n in scenarios
        ]
        events = [{"ScenarioFinished": {"phase": phase, "recorder": recorder}} for phase, recorder in recorders[:count]]
        report.write_text("".join(json.dumps(event) + "\n" for event in [{"EngineStarted": {}}, *events]))
        return {**summed(report, expected), "returncode": 0}

    found = written(4)
    assert (found["requests"], found["requests_sent"]) == ({"fuzzing": 2, "coverage": 1, "stateful": 3}, 6)
    assert found["not_exercised"] == ["GET /b"]
    assert not document_holds(found)
    scenarios[2] = ("GET /b", "fuzzing", 1)
    assert document_holds(written(4))
    assert not document_holds(written(4) | {"returncode": 1})
    assert written(0)["not_exercised"] == ["GET /a", "GET /b", "PUT /a"]


class Victim:
    """Whoever is killed and comes back, or has played everything there is."""

    done = False

    def kill(self) -> None: ...

    def start(self) -> None: ...


@pytest.mark.parametrize(("count", "planned"), [(100, 10), (60_000, 15)])
def test_kills_are_spread_over_the_episodes_and_fall_on_everybody_in_turn(
    count: int, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(chaos, "DOWN_SECONDS", 0.0)
    monkeypatch.setattr(chaos, "LOOK_SECONDS", 0.0)
    player, names, recorded, at = Victim(), "abcde", 0, []

    def some_more() -> int:
        nonlocal recorded
        recorded += max(1, count // 200)
        player.done = recorded >= count
        return recorded

    kills = chaos.torment(player, {name: Victim() for name in names}, count, some_more, lambda _: at.append(recorded))
    assert kills == dict.fromkeys(names, planned // len(names))
    gaps = [later - earlier for earlier, later in zip([0, *at], at, strict=False)]
    assert max(gaps) <= count / (planned + 1) + 2 * max(1, count // 200)


@pytest.mark.parametrize("statements", [1, 24, 25, 250])
def test_intruders_make_as_many_statements_as_they_are_asked_for(statements: int) -> None:
    turns = tenancy._turns(random.Random(1), statements)
    assert sum(count for _, count in turns) == statements
    assert all(count == 1 for template, count in turns if template in tenancy.WRITES)
    assert sum(tenancy.shares(statements)) == statements
