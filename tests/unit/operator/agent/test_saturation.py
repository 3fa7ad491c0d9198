"""An agent whose runs bring nothing rests longer and longer, says so, and wakes when something changes."""

import re
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_api import names
from learnloop_operator.agents.agent_snapshot import Policy, TrainingRun
from learnloop_operator.agents.decide_agent import decide
from learnloop_operator.agents.triggers import FIRST_SECONDS, LONGEST_SECONDS, PATIENCE
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import stamp

from .test_learning_agent import NOW, created, job, situation, spec

HOUR = timedelta(hours=1)


class Loop:
    """Runs one after another, each with 100 more episodes; only the newest TrainingJob is kept."""

    def __init__(self) -> None:
        self.now, self.rewarded, self.status = NOW, 100, {"registered": "solving/r1"}
        self.jobs: tuple[TrainingRun, ...] = ()

    def look(self, **more) -> Plan:
        arguments = {"before": self.status, "jobs": self.jobs, "now": self.now, **more}
        plan = decide(situation(self.rewarded, **arguments))
        self.status = plan.status
        return plan

    def until_it_begins(self, **more) -> float:
        """Seconds."""
        waited = 0.0
        while not created(plan := self.look(**more)):
            wait = re.search("begins in ([0-9]+) s", why(plan))
            pause = max(plan.requeue_after, float(wait[1]) - 1 if wait else 0.0)
            self.now, waited = self.now + timedelta(seconds=pause), waited + pause
            assert waited < 2 * LONGEST_SECONDS, why(plan)
        self._begun = plan.apply[0]["metadata"]
        return waited

    def end(self, phase: str) -> None:
        number = int(self._begun["name"].rpartition("-")[2])
        self.now, self.rewarded = self.now + HOUR, self.rewarded + 100
        self.jobs = (job(number, phase, self.now, notes=self._begun["annotations"]),)


def after(*phases: str) -> Loop:
    loop = Loop()
    for phase in phases:
        loop.until_it_begins()
        loop.end(phase)
    return loop


def why(plan: Plan) -> str:
    return str(plan.status["conditions"][0]["message"])


@given(st.lists(st.sampled_from(["Failed", "Validated"]), max_size=12))
def test_the_rest_depends_on_the_runs_without_gain_in_a_row_alone(phases: list[str]) -> None:
    barren = next((n for n, phase in enumerate(reversed(phases)) if phase == "Validated"), len(phases))
    waited = after(*phases).until_it_begins()
    if barren < PATIENCE:
        assert waited <= 60, "minIntervalSeconds"
    else:
        expected = min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** (barren - PATIENCE))
        assert expected <= waited <= expected + 60


def test_the_status_says_how_many_runs_brought_nothing_and_when_the_next_one_begins() -> None:
    loop = after(*["Failed"] * PATIENCE)
    assert "3 runs in a row brought no better model: the next one begins in 600 s, after a change" in why(loop.look())
    loop.now += timedelta(seconds=590)
    assert "begins in 10 s" in why(loop.look())


def _longer() -> dict:
    body = spec()
    body["training"]["template"]["totalSteps"] = 2000
    return body


def _other_world() -> dict:
    body = spec()
    body["task"]["environment"]["level"] = "hard"
    return body


@pytest.mark.parametrize(
    "change",
    [
        {"spec": _longer()},
        {"spec": _other_world()},
        {"environment_code": "0badc0de"},
        {"policy": Policy(True, "r2")},
        {"annotations": {names.ANNOTATION_TRAIN: "1 by admin"}},
    ],
    ids=["spec", "world", "environment code", "reward policy", "asked"],
)
def test_a_change_or_an_order_ends_the_rest(change: dict) -> None:
    loop = after(*["Failed"] * 8)
    assert created(loop.look()) == []
    loop.now += timedelta(seconds=60)
    assert loop.until_it_begins(**change) <= 60


def test_suspending_ends_no_rest() -> None:
    loop = after(*["Failed"] * 5)
    loop.look(spec=spec(suspend=True))
    assert "5 runs in a row" in why(loop.look())


def test_a_schedule_rests_too() -> None:
    body = spec()
    body["training"]["triggers"] = {"schedule": "* * * * *"}
    loop = Loop()
    loop.look(spec=body)
    for _ in range(PATIENCE):
        loop.now += HOUR
        loop.until_it_begins(spec=body)
        loop.end("Failed")
    loop.now += timedelta(seconds=120)
    assert "3 runs in a row" in why(loop.look(spec=body))


def test_an_operator_that_dies_forgets_no_rest() -> None:
    loop = after(*["Failed"] * PATIENCE)
    before = {"registered": "solving/r1", "lastTraining": {"name": "la-1", "trigger": "episodes", "at": stamp(NOW)}}
    assert created(loop.look(before=before)) == []
