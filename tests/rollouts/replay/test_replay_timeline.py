"""`kubectl learnloop plan`: what it says of the rollouts on record, each replayed to its end."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.cli.prometheus_history import PrometheusHistory
from learnloop_operator.cli.replay import timelines

SPEC: dict[str, Any] = {"model": {"uri": "https://m/1", "sha256": "ab" * 32}}
BASE, BAD, GOOD = 1_800_000_000.0, "aaaaaaaa", "bbbbbbbb"
BEGAN = BASE + 600


class Cluster:
    """Holds the ModelDeployment whose revision was blocked."""

    def __init__(self, blocked: dict[str, Any]) -> None:
        self._live = {"metadata": {"name": "x"}, "spec": SPEC, "status": {"blockedRevision": blocked}}

    def find(self, plural: str, name: str) -> dict[str, Any]:
        return self._live


def record(lasts: float = 300.0, returns: float = 9.0, copies: bool = False) -> PrometheusHistory:
    """A Prometheus that remembers half an hour, or as much as it takes, in which BAD got an episode every other second
    beside GOOD; with `copies` it was in shadow then."""
    end = max(BASE + 1800, BEGAN + lasts)

    def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
        if path == "query_range":
            first, last, spells = (
                float(form["start"]),
                float(form["end"]),
                {GOOD: (BASE, end), BAD: (BEGAN, BEGAN + lasts)},
            )
            found = [
                {
                    "metric": {"revision": arm, "pod": arm},
                    "values": [[at, str(at)] for at in range(int(a), int(b), 5) if first <= at <= last],
                }
                for arm, (a, b) in spells.items()
            ]
            return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}})
        now = float(form["time"])
        mine = max(0.0, min(now, BEGAN + lasts) - BEGAN) / 2
        played = {GOOD: 60.0 + 9.0 * mine, BAD: mine}
        rows: list[tuple[dict[str, str], float]] = []
        if form["query"].startswith("min by (revision) (learnloop_server_started_seconds"):
            rows += [({"revision": GOOD}, BASE - 60.0)]
        elif form["query"].startswith("max(max_over_time"):
            rows.append(({}, 100.0 if copies else 0.0))
        elif form["query"].startswith("sum by (revision) (increase"):
            rows += [({"revision": arm}, count) for arm, count in played.items()]
        elif "learnloop_shadow" in form["query"]:
            shadow = {"revision": BAD}
            rows += [({**shadow, "learnloop_signal": signal}, played[BAD]) for signal in ("compared", "errors")]
            rows.append(({**shadow, "learnloop_signal": "seen"}, now))
        else:
            for arm, count in played.items():
                rows.append(({"revision": arm, "learnloop_signal": "ended", "outcome": "success"}, count))
                rows.append(({"revision": arm, "learnloop_signal": "opened"}, count))
                rows.append(({"revision": arm, "learnloop_signal": "lasted", "le": "1.0"}, count))
                rows.append(({"revision": arm, "learnloop_signal": "lasted", "le": "+Inf"}, count))
                rows.append(({"revision": arm, "learnloop_signal": "gain"}, count * (returns if arm == BAD else 300.0)))
                rows.append(({"revision": arm, "learnloop_signal": "seen"}, now))
                of = returns if arm == BAD else 300.0
                for bound in (10.0, 300.0, math.inf):
                    labels = {"revision": arm, "learnloop_signal": "returns", "le": f"{bound}"}
                    rows.append((labels, count if of <= bound else 0.0))
        vector = [{"metric": labels, "value": [now, str(value)]} for labels, value in rows]
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": vector}})

    history = PrometheusHistory(ask)
    history.at = datetime.fromtimestamp(end, UTC)
    return history


def told(history: PrometheusHistory, last: timedelta = timedelta(hours=1), **spec: Any) -> list[str]:
    pinned = {"revision": BAD, "message": "RolledBack at 10 %: too bad", "at": "2027-01-15T08:15:00Z"}
    body = {"metadata": {"name": "x", "namespace": "ns"}}
    asked = ModelDeploymentSpec.model_validate({**SPEC, **spec})
    return timelines(Cluster(pinned), history, body, asked, last).splitlines()  # type: ignore[arg-type]


def test_a_bad_canary_on_record_would_have_been_rolled_back_beside_what_really_happened() -> None:
    lines = told(record())
    assert lines[0].endswith("aaaaaaaa next to bbbbbbbb")
    assert "would be  10 %" in lines[2]
    assert "RolledBack: RolledBack at 10 %: return of the canary 9 vs 300 of stable" in lines[-2]
    assert lines[-1] == "  really: RolledBack at 10 %: too bad (2027-01-15T08:15:00Z)"


def test_a_rollout_of_five_hours_is_replayed_to_its_end_and_says_how_often_it_was_looked_at() -> None:
    steps = [{"weight": 10, "minEpisodes": 8_000}, {"weight": 100}]
    lines = told(record(18_000.0, 300.0), timedelta(hours=6), rollout={"steps": steps, "keepForSeconds": 60})
    assert any("would be 100 %" in line for line in lines)
    (said,) = (line for line in lines if line.startswith("  looked at"))
    assert said == "  looked at each 5 s at first, each 40 s in the end: changes may be shown that much late"


SHADOW = {"steps": [{"weight": 0, "shadow": {"minRequests": 50}}, {"weight": 10}, {"weight": 100}]}


def test_a_shadow_step_is_replayed_by_the_copies_on_record() -> None:
    lines = told(record(copies=True), rollout=SHADOW)
    assert any("RolledBack before its first episode: error rate " in line for line in lines)
    assert not any("without its shadow steps" in line for line in lines)


def test_a_shadow_step_without_copies_on_record_is_left_out_and_said_to_be() -> None:
    lines = told(record(), rollout=SHADOW)
    assert lines[1] == "  without its shadow steps: no copies to aaaaaaaa are on record"
    assert any("RolledBack at 10 %: return of the canary" in line for line in lines)


def test_what_the_object_says_of_a_revision_is_told_of_its_last_try_only() -> None:
    tries = [(BASE + 600, BASE + 800), (BASE + 1000, BASE + 1200)]

    def ask(path: str, form: Mapping[str, str]) -> tuple[int, str]:
        if path == "query_range":
            arms = [(GOOD, BASE, BASE + 1800), *((BAD, *each) for each in tries)]
            rows = [
                {
                    "metric": {"revision": arm, "pod": f"{arm}-{first}"},
                    "values": [[at, str(at)] for at in range(int(first), int(last) + 1, 5)],
                }
                for arm, first, last in arms
            ]
            return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})

    history = PrometheusHistory(ask)
    history.at = datetime.fromtimestamp(BASE + 1800, UTC)
    # 1.8e9 is 2027-01-15T08:00:00Z, and the second try ends 20 minutes later.
    pinned = {"revision": BAD, "message": "RolledBack at 10 %: too bad", "at": "2027-01-15T08:20:00Z"}
    body = {"metadata": {"name": "x", "namespace": "ns"}}
    asked = ModelDeploymentSpec.model_validate(SPEC)
    text = timelines(Cluster(pinned), history, body, asked, timedelta(hours=1))  # type: ignore[arg-type]
    fates = [line for line in text.splitlines() if line.startswith("  really: ")]
    assert fates == [
        "  really: its pods were there until 2027-01-15 08:13:20",
        "  really: RolledBack at 10 %: too bad (2027-01-15T08:20:00Z)",
    ]
