"""`kubectl learnloop plan`: which file it takes, which rollouts it finds, and what it says of them."""

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.cli import plan
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.history import History, found, with_guests
from learnloop_operator.cli.timeline import timelines

SPEC: dict[str, Any] = {"model": {"uri": "https://m/1", "sha256": "ab" * 32}}
FILE = "apiVersion: learnloop.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: x}\nspec: {}\n"


class Server:
    """An API server that stores SPEC and a Prometheus whose record is empty."""

    namespace = "ns"

    def __init__(self, status: dict[str, Any] | None = None) -> None:
        self.live = {"metadata": {"name": "x"}, "spec": SPEC, "status": status or {}} if status is not None else None
        self.asked: list[tuple[str, str]] = []

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        return self.live

    def dry_run(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "spec": SPEC}

    def proxy(self, service: str) -> Any:
        def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
            self.asked.append((service, path))
            return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}})

        return ask


def run(server: Server, file: Path, last: str | None = None) -> str:
    options = argparse.Namespace(
        filename=str(file),
        last=plan.duration(last) if last else None,
        prometheus=None,
        prometheus_service="sys/prom:http",
    )
    return plan.run(server, options)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(FILE)
    return path


def test_a_new_object_serves_its_first_model_and_nothing_is_written(file: Path) -> None:
    said = run(Server(), file)
    assert "the first model: it serves as soon as its pods can" in said
    assert "10 % (20 episodes) → 25 % (20 episodes)" in said
    assert "ns/x: would be new; nothing was written" in said


def test_a_new_revision_says_which_pods_come_and_how_it_starts(file: Path) -> None:
    stable = {"revision": "bbbbbbbb", "uri": "https://m/0", "replicas": 1, "readyReplicas": 1}
    said = run(Server({"stable": stable}), file)
    assert "a new revision" in said
    assert "it starts as a canary without episodes" in said
    assert " × 1" in said


def test_a_blocked_revision_is_called_blocked(file: Path) -> None:
    new = run(Server(), file).splitlines()[0].split()[1]
    pinned = {
        "revision": new,
        "uri": "https://m/1",
        "reason": "Aborted",
        "message": "too bad",
        "at": "2026-01-01T00:00:00Z",
    }
    stable = {"revision": "bbbbbbbb", "uri": "https://m/0", "replicas": 1, "readyReplicas": 1}
    said = run(Server({"stable": stable, "blockedRevision": pinned}), file)
    assert "blocked since 2026-01-01T00:00:00Z: too bad; `kubectl learnloop retry`" in said
    assert "no new arm" in said


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("kind: [", "cannot be read as YAML"),
        ("kind: Pod", r"holds \['Pod'\]: give it exactly one ModelDeployment"),
        (FILE + "---\n" + FILE, "exactly one ModelDeployment"),
        (FILE.replace("v1alpha1", "v9"), "set apiVersion: learnloop.dev/v1alpha1"),
    ],
)
def test_a_file_that_is_no_model_deployment_is_refused(file: Path, text: str, refusal: str) -> None:
    file.write_text(text)
    with pytest.raises(CommandError, match=refusal):
        run(Server(), file)


def test_the_record_is_asked_through_the_api_server_and_an_empty_one_says_so(file: Path) -> None:
    server = Server()
    assert "no rollout of ns/x is on record in the last 7 days" in run(server, file, "7d")
    assert server.asked == [("sys/prom:http", "query_range")]


@pytest.mark.parametrize("text", ["7", "0d", "7 days", "-1h", "1y"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"write e\.g\. 30m, 6h or 7d"):
        plan.duration(text)


def test_every_spell_of_a_revision_beside_another_is_a_rollout_of_its_own() -> None:
    def spell(first: int, last: int) -> list[float]:
        return [float(moment) for moment in range(first, last + 1, 5)]

    series = {"old": spell(0, 1000), "bad": [*spell(100, 200), *spell(500, 600)], "new": spell(800, 2000)}
    rollouts = found(series, 5.0)
    told = [(item.canary, item.stable, item.began.timestamp(), item.ended.timestamp()) for item in rollouts]
    assert told == [("bad", "old", 95, 200), ("bad", "old", 495, 600), ("new", "old", 795, 2000)]


def test_the_guests_of_an_experiment_are_no_rollouts_of_their_own_and_may_outlast_the_canary() -> None:
    def spell(first: int, last: int) -> list[float]:
        return [float(moment) for moment in range(first, last + 1, 5)]

    series = {"old": spell(0, 1000), "new": spell(100, 300), "guest": spell(150, 400), "later": spell(600, 700)}
    told = with_guests(found(series, 5.0), {"guest", "unseen"})
    assert [(item.canary, item.guests, item.ended.timestamp()) for item in told] == [
        ("new", frozenset({"guest"}), 400),
        ("later", frozenset(), 700),
    ]
    alone = with_guests(found({"old": spell(0, 1000), "guest": spell(150, 400)}, 5.0), {"guest"})
    assert [item.canary for item in alone] == ["guest"], "it was rolled out by itself then"


def test_what_is_no_prometheus_is_named() -> None:
    history = History(lambda path, form: (502, "<html>"))
    history.at = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(CommandError, match="Prometheus answers 502: <html>"):
        history.rollouts("ns", "x", timedelta(hours=1))


def test_a_bad_canary_on_record_would_have_been_taken_back_beside_what_really_happened(file: Path) -> None:
    base, bad, good = 1_800_000_000.0, "aaaaaaaa", "bbbbbbbb"
    began = base + 600

    def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
        if path == "query_range":
            spells = {good: (base, base + 1800), bad: (began, began + 300)}
            found = [
                {"metric": {"revision": arm}, "values": [[at, "1"] for at in range(int(first), int(last), 5)]}
                for arm, (first, last) in spells.items()
            ]
            return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}})
        now = float(form["time"])
        played = {good: 60.0, bad: max(0.0, min(now, began + 300) - began) / 2}
        rows = []
        for arm, count in played.items():
            if form["query"].startswith("sum by (revision) (increase"):
                rows.append(({"revision": arm}, count))
                continue
            rows.append(({"revision": arm, "learnloop_signal": "ended", "outcome": "success"}, count))
            rows.append(({"revision": arm, "learnloop_signal": "gain"}, count * (9.0 if arm == bad else 300.0)))
            rows.append(({"revision": arm, "learnloop_signal": "seen"}, now))
        vector = [{"metric": labels, "value": [now, str(value)]} for labels, value in rows]
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": vector}})

    pinned = {"revision": bad, "message": "RolledBack at 10 %: too bad", "at": "2027-01-15T08:15:00Z"}
    history = History(ask)
    history.at = datetime.fromtimestamp(base + 1800, UTC)
    body = {"metadata": {"name": "x", "namespace": "ns"}}
    server = Server({"blockedRevision": pinned})
    said = timelines(server, history, body, ModelDeploymentSpec.model_validate(SPEC), timedelta(hours=1))  # type: ignore[arg-type]
    lines = said.splitlines()
    assert lines[0].endswith("aaaaaaaa beside bbbbbbbb")
    assert "would be  10 %" in lines[2]
    assert "RolledBack: RolledBack at 10 %: return of the canary 9 vs 300 of stable" in lines[-2]
    assert lines[-1] == "  really: RolledBack at 10 %: too bad (2027-01-15T08:15:00Z)"
