"""`kubectl learnloop plan`: which file it takes, and which rollouts it finds."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.planning import duration, label
from learnloop_operator.cli.prometheus_history import PrometheusHistory, pieces, resolution
from learnloop_operator.cli.recorded_rollouts import PodSamples, recorded, with_guests
from learnloop_operator.cli.replay import LOOKS, moments
from testing.command_line import typed

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
    more = ["--last", last] if last else []
    return typed(server, "plan", "-f", str(file), "--prometheus-service", "sys/prom:http", "--pod-label", "pod", *more)


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
    said = run(Server({"stable": stable, "blockedRevisions": [pinned]}), file)
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
    assert set(server.asked) == {("sys/prom:http", "query_range")}


@pytest.mark.parametrize("text", ["7", "0d", "7 days", "-1h", "1y"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"write e\.g\. 30m, 6h or 7d"):
        duration(text)


def test_a_label_that_is_none_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="invalid label 'a-b'"):
        label("a-b")


def test_every_spell_of_a_revision_beside_another_is_a_rollout_of_its_own() -> None:
    def spell(first: int, last: int) -> list[float]:
        return [float(moment) for moment in range(first, last + 1, 5)]

    pods = [("old", 0, 1000), ("bad", 100, 200), ("bad", 500, 600), ("new", 800, 2000)]
    rollouts = recorded([PodSamples(arm, f"{arm}-{first}", spell(first, last)) for arm, first, last in pods], 5.0)
    told = [(item.canary, item.stable, item.began.timestamp(), item.ended.timestamp()) for item in rollouts]
    assert told == [("bad", "old", 95, 200), ("bad", "old", 495, 600), ("new", "old", 795, 2000)]


def test_the_guests_of_an_experiment_are_no_rollouts_of_their_own_and_may_outlast_the_canary() -> None:
    def spell(first: int, last: int) -> list[float]:
        return [float(moment) for moment in range(first, last + 1, 5)]

    def pods(**arms: list[float]) -> list[PodSamples]:
        return [PodSamples(arm, f"pod-{arm}", times) for arm, times in arms.items()]

    arms = pods(old=spell(0, 1000), new=spell(100, 300), guest=spell(150, 400), later=spell(600, 700))
    told = with_guests(recorded(arms, 5.0), {"guest", "unseen"})
    assert [(item.canary, item.guests, item.ended.timestamp()) for item in told] == [
        ("new", frozenset({"guest"}), 400),
        ("later", frozenset(), 700),
    ]
    alone = with_guests(recorded(pods(old=spell(0, 1000), guest=spell(150, 400)), 5.0), {"guest"})
    assert [item.canary for item in alone] == ["guest"], "it was rolled out by itself then"


def test_a_week_is_asked_for_in_pieces_that_prometheus_answers_and_none_is_seen_twice() -> None:
    end, week = 1_800_000_000.0, timedelta(days=7)
    step = resolution(week)
    assert step == 5.0
    asked = [
        first + number * step
        for first, last in pieces(end, week.total_seconds(), step)
        for number in range(int((last - first) // step) + 1)
    ]
    assert asked == [end - 604_800 + 5 * number for number in range(120_961)]
    assert all((last - first) / step < 11_000 for first, last in pieces(end, week.total_seconds(), step))


def test_a_year_is_asked_for_in_no_more_than_a_hundred_pieces() -> None:
    year = timedelta(days=365)
    assert len(list(pieces(1_800_000_000.0, year.total_seconds(), resolution(year)))) <= 101


def test_a_rollout_of_twenty_seconds_is_found_in_a_week() -> None:
    end = 1_800_000_000
    spells = {"old": (end - 604_800, end), "short": (end - 300_010, end - 299_990)}

    def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
        if path == "query":
            found = [{"metric": {"revision": arm}, "value": [0, str(a)]} for arm, (a, _) in spells.items()]
            return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}})
        first, last, step = (int(float(form[name])) for name in ("start", "end", "step"))
        rows = [
            {
                "metric": {"revision": arm, "pod": arm},
                "values": [[at, str(at)] for at in range(first, last + 1, step) if a <= at <= b],
            }
            for arm, (a, b) in spells.items()
        ]
        found = [row for row in rows if row["values"]]
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}})

    history = PrometheusHistory(ask)
    history.at = datetime.fromtimestamp(end, UTC)
    (rollout,) = history.rollouts("ns", "x", timedelta(days=7))
    assert (rollout.canary, rollout.stable) == ("short", "old")
    assert rollout.ended - rollout.began == timedelta(seconds=25)


@pytest.mark.parametrize("lasts", [timedelta(minutes=5), timedelta(hours=3), timedelta(days=7)])
def test_a_long_rollout_is_looked_at_less_and_less_often_but_to_its_end(lasts: timedelta) -> None:
    began, interval = datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=5)
    looks = list(moments(began, began + lasts, interval))
    assert [at for at, _ in looks[:3]] == [began, began + interval, began + 2 * interval]
    assert began + lasts - looks[-1][0] < looks[-1][1]
    assert all(spread <= max(interval, (at - began) / LOOKS * 2) for at, spread in looks)
    assert len(looks) <= 10 * LOOKS


def test_what_is_no_prometheus_is_named() -> None:
    history = PrometheusHistory(lambda path, form: (502, "<html>"))
    history.at = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(CommandError, match="Prometheus answers 502: <html>"):
        history.rollouts("ns", "x", timedelta(hours=1))
