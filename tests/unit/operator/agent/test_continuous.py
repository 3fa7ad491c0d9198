"""Triggers of an agent whose rank stays: updates of one run, and what freezes them."""

from datetime import timedelta
from typing import Any

import pytest

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentStatus
from learnloop_operator.agents.agent_snapshot import TrainingRun
from learnloop_operator.agents.decide_agent import decide
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import stamp

from .test_learning_agent import NOW, SHA, created, situation, spec

TRAIN = {names.ANNOTATION_TRAIN: "now"}


def continuous(**template: Any) -> dict[str, Any]:
    training = spec()["training"]
    return spec(training=training | {"continuous": {"steps": 256}, "template": training["template"] | template})


BODY = continuous()


def rested(plan: Plan, **changes: Any) -> TrainingRun:
    """The run that the plan asks for, once its newest update is judged."""
    (manifest,) = (item for item in plan.apply if item["kind"] == "TrainingJob")
    defaults: dict[str, Any] = {
        "name": manifest["metadata"]["name"],
        "number": 1,
        "phase": "Validated",
        "finished": False,
        "created_at": stamp(NOW - timedelta(hours=2)),
        "finished_at": stamp(NOW - timedelta(hours=1)),
        "uri": "https://m/1",
        "sha256": SHA,
        "verdict": "Validated",
        "notes": manifest["metadata"]["annotations"],
        "update": manifest["spec"]["continuous"]["update"],
        "rests": True,
        "proven": True,
        "spec": manifest["spec"],
    }
    return TrainingRun(**defaults | changes)


def deployed(uri: str = "https://m/1", **more: Any) -> ModelDeploymentStatus:
    return ModelDeploymentStatus.model_validate({"stable": {"revision": "2" * 8, "uri": uri}, **more})


FIRST = decide(situation(120, spec=BODY))


def turn(rewarded: int = 300, plan: Plan = FIRST, run: dict[str, Any] | None = None, **changes: Any) -> Plan:
    world = {"spec": BODY, "before": plan.status, "jobs": (rested(plan, **run or {}),), "deployment": deployed()}
    return decide(situation(rewarded, **world | changes))


def frozen(plan: Plan) -> tuple[str, str]:
    result = next(item for item in plan.status["conditions"] if item["type"] == "Frozen")
    return result["status"], result["reason"]


def test_further_triggers_are_updates_of_the_run_that_stays_and_each_counts_as_a_run() -> None:
    second = turn()
    third = turn(600, second)
    jobs = [item for plan in (FIRST, second, third) for item in plan.apply if item["kind"] == "TrainingJob"]
    assert {item["metadata"]["name"] for item in jobs} == {"la-1"}
    assert [item["spec"]["continuous"]["update"] for item in jobs] == [0, 1, 2]
    specs = [{**item["spec"], "continuous": None} for item in jobs]
    assert specs[0] == specs[1] == specs[2], "only the number of the update changes"
    assert [plan.status["trainings"] for plan in (FIRST, second, third)] == [1, 2, 3]
    assert created(turn(300, second, {"rests": False, "phase": "Training"})) == []


def test_an_operator_that_died_before_the_status_counts_the_update() -> None:
    second = turn()
    late = turn(300, second, before=FIRST.status)
    assert (created(late), late.status["trainings"]) == ([], 2)
    assert late.status["lastTraining"]["rewarded"] == 300


def test_the_next_update_waits_for_the_canary_of_the_last_one() -> None:
    canary = {"revision": "3" * 8, "uri": "https://m/1"}
    assert created(turn(deployment=deployed("https://m/0", canary=canary))) == []
    assert created(turn(deployment=deployed("https://m/0"))) == [], "nor has its rollout begun"


def test_a_stray_or_rolled_back_update_freezes_until_a_person_asks() -> None:
    held = turn(run={"verdict": "Strayed", "phase": "Waiting"})
    assert (created(held), frozen(held)) == ([], ("True", "Strayed"))
    undone = {"revision": "3" * 8, "uri": "https://m/1", "sha256": SHA, "at": stamp(NOW), "reason": "Worse"}
    served = deployed("https://m/0", blockedRevisions=[undone | {"message": "return .4 of 1"}])
    held = turn(deployment=served)
    assert (created(held), frozen(held)) == ([], ("True", "RolledBack"))
    assert "return .4 of 1; `kubectl learnloop train la` goes on" in held.status["conditions"][0]["message"]
    assert created(turn(deployment=served, request="a program's")) == []
    thawed = turn(deployment=served, annotations=TRAIN)
    assert created(thawed) == ["la-1"]
    refused = turn(600, thawed, {"verdict": "UpdateRefused", "phase": "Waiting"}, deployment=served, annotations=TRAIN)
    assert (created(refused), frozen(refused)) == (["la-1"], ("False", "Learning"))


@pytest.mark.parametrize("ended", [{"finished": True, "phase": "Failed"}, {"phase": "Restarting"}])
def test_the_death_of_the_rank_does_not_thaw_what_was_rolled_back(ended: dict[str, Any]) -> None:
    undone = {"revision": "3" * 8, "uri": "https://m/1", "sha256": SHA, "at": stamp(NOW), "reason": "Worse"}
    served = deployed("https://m/0", blockedRevisions=[undone | {"message": "return .4 of 1"}])
    dead = {"rests": False, **ended}
    held = turn(run=dead, deployment=served)
    assert (created(held), frozen(held)) == ([], ("True", "RolledBack"))
    if ended.get("finished"):
        assert created(turn(run=dead, deployment=served, annotations=TRAIN)) == ["la-2"]


def test_a_run_that_ended_after_a_stray_stays_frozen() -> None:
    held = turn(run={"finished": True, "rests": False, "phase": "Failed", "verdict": "Strayed"})
    assert (created(held), frozen(held)) == ([], ("True", "Strayed"))


def test_only_a_person_ends_a_canary_without_a_verdict() -> None:
    canary = deployed("https://m/0", canary={"revision": "3" * 8, "uri": "https://m/1"})
    assert created(turn(deployment=canary, request="a program's")) == []
    assert created(turn(deployment=canary, annotations=TRAIN)) == ["la-1"]


def test_another_template_ends_the_run_and_only_then_begins_another() -> None:
    changed = continuous(totalSteps=2000)
    ending = turn(spec=changed)
    (manifest,) = (item for item in ending.apply if item["kind"] == "TrainingJob")
    assert manifest["spec"] == {key: part for key, part in (rested(FIRST).spec or {}).items() if key != "continuous"}
    ended = rested(FIRST, finished=True, rests=False, update=None)
    assert created(turn(spec=changed, jobs=(ended,))) == ["la-2"]
    assert created(turn(spec=spec())) == ["la-1"], "ends where continuous is removed, too"
