"""Runs that a change starts: once for each change, at a bounded rate, with a sentence."""

from datetime import timedelta
from typing import Any

import pytest

from learnloop_api import names
from learnloop_operator.agents.decide import decide
from learnloop_operator.agents.snapshot import Policy
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import stamp

from .test_learning_agent import NOW, created, job, spec, world

KINDS = ["environment", "rewardRevision", "commit", "anomaly", "drift"]
HOUR = timedelta(hours=1)


def watched(*on: str, environment: str = "CartPole-v1", level: str | None = None) -> dict[str, Any]:
    told = spec()
    told["training"]["triggers"] = {"on": list(on), "minIntervalSeconds": 0}
    told["task"]["environment"] |= {"name": environment} | ({"level": level} if level else {})
    return told


def anomalous(reason: str, since: str = "2026-05-01T11:00:00Z", status: str = "True") -> dict[str, Any]:
    named = {"type": "Anomalous", "status": status, "reason": reason, "message": "the newest ten rank below forty"}
    return named | {"lastTransitionTime": since}


def changed(kind: str, status: dict[str, Any]) -> dict[str, Any]:
    """What makes the change, as arguments of `world`."""
    match kind:
        case "environment":
            return {"spec": watched(*KINDS, level="hard")}
        case "rewardRevision":
            return {"policy": Policy(True, "r2")}
        case "commit":
            return {"annotations": {names.ANNOTATION_COMMIT: "abc"}}
        case _:
            held = anomalous("SuddenDrop" if kind == "anomaly" else "SlowDecline")
            return {"before": {**status, "conditions": [*status["conditions"], held]}}


def look(plan: Plan | None, **more: Any) -> Plan:
    before = {"before": plan.status} if plan else {}
    return decide(world(0, **{"spec": watched(*KINDS), **before, **more}))


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_starts_one_run_and_says_so(kind: str) -> None:
    first = look(None)
    assert created(first) == [], "what is so when the trigger is set is no change"
    assert created(look(first)) == []
    more = changed(kind, first.status)
    second = look(first, **more)
    assert created(second) == ["la-1"]
    assert second.status["lastTraining"]["trigger"] == kind
    assert second.events[0].reason == "TrainingTriggered"
    later = {**more, "jobs": (job(1),), "now": NOW + 9 * HOUR}
    later.pop("before", None)
    assert created(look(second, **later)) == [], "once"


def test_a_change_that_comes_again_soon_waits_and_the_status_says_until_when() -> None:
    first = look(look(None), annotations={names.ANNOTATION_COMMIT: "abc"})
    done = {"jobs": (job(1),), "annotations": {names.ANNOTATION_COMMIT: "def"}}
    soon = look(first, now=NOW + HOUR / 2, **done)
    assert created(soon) == []
    until = stamp(NOW + HOUR)
    assert f"commit def after abc, at {until}: onIntervalSeconds" in soon.status["conditions"][0]["message"]
    assert created(look(soon, now=NOW + HOUR, **done)) == ["la-2"]


def test_a_change_that_goes_on_is_none_and_one_that_ends_and_comes_back_is() -> None:
    first = look(None)
    held = [*first.status["conditions"], anomalous("SuddenDrop")]
    second = look(first, before={**first.status, "conditions": held})
    done = {"jobs": (job(1),), "now": NOW + 9 * HOUR}
    same = look(second, before={**second.status, "conditions": held}, **done)
    assert created(same) == []
    anew = [*first.status["conditions"], anomalous("SuddenDrop", "2026-05-01T20:00:00Z")]
    assert created(look(same, before={**same.status, "conditions": anew}, **done)) == ["la-2"]


def test_an_operator_that_dies_after_it_made_the_run_makes_no_second_one() -> None:
    first = look(None)
    made = look(first, annotations={names.ANNOTATION_COMMIT: "abc"})
    notes = made.apply[0]["metadata"]["annotations"]
    more = {"jobs": (job(1, notes=notes),), "annotations": {names.ANNOTATION_COMMIT: "abc"}, "now": NOW + 9 * HOUR}
    assert created(look(first, **more)) == []


def test_new_code_in_the_environments_config_map_is_another_environment() -> None:
    first = look(None, environment_code="1")
    assert created(look(first, environment_code="1")) == []
    second = look(first, environment_code="2")
    assert second.status["lastTraining"]["trigger"] == "environment"


def test_who_plays_the_world_and_what_is_good_change_nothing_about_it() -> None:
    first = look(None)
    told = watched(*KINDS)
    told["task"]["environment"] |= {"successReturn": 400, "actors": {"replicas": 3}}
    assert created(look(first, spec=told)) == []


def test_without_triggers_nothing_is_remembered() -> None:
    assert "changes" not in decide(world(0)).status
