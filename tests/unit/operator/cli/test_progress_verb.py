"""`kubectl learnloop progress`: sentences about what changed, and a table of the weeks."""

import json
from typing import Any

import pytest

from learnloop_operator.cli.objects import CommandError
from testing.command_line import typed

FIRST = {
    "week": "2026-03-02",
    "episodes": 100,
    "success_rate": 0.5,
    "completion_seconds": 20.0,
    "turns": 10.0,
    "satisfaction": -0.2,
    "raw_reward": 0.3,
    "trainings": 2,
    "training_success_rate": 0.5,
    "gains": 2,
    "gain_per_training": 0.1,
    "promotions": 1,
    "deployment_success_rate": 1.0,
    "rollbacks": 0,
    "false_rollbacks": 0,
}
LAST = FIRST | {
    "week": "2026-03-09",
    "success_rate": 0.65,
    "completion_seconds": 15.0,
    "turns": None,
    "satisfaction": 0.4,
    "training_success_rate": 1.0,
    "gains": 2,
    "gain_per_training": 0.2,
    "promotions": 2,
    "deployment_success_rate": 2 / 3,
    "rollbacks": 1,
    "false_rollbacks": 1,
}


class World:
    """A cluster with one agent and a data plane."""

    namespace = "team-a"

    def __init__(self, *weeks: Any) -> None:
        self.weeks, self.asked = list(weeks), list[dict[str, str]]()

    def get(self, plural: str, name: str) -> Any:
        assert (plural, name) == ("learningagents", "walker")
        return {}

    def token(self, account: str, audience: str) -> str:
        return "token"

    def forward(self, service: str) -> Any:
        def send(method: str, path: str, query: Any, headers: Any, body: Any, seconds: float) -> tuple[int, str]:
            assert (method, path) == ("GET", "/api/v1/agents/walker/progress")
            self.asked.append(dict(query))
            return 200, json.dumps({"agent": "walker", "weeks": self.weeks})

        return send


def told(world: World, *arguments: str) -> str:
    return typed(world, "progress", "walker", *arguments)


def test_sentences_say_what_changed_and_the_table_has_every_week() -> None:
    world = World(FIRST, LAST)
    said = told(world, "--weeks", "4").splitlines()
    assert world.asked == [{"weeks": "4"}]
    last = "In the week of 2026-03-09 walker"
    assert said[:7] == [
        f"{last} succeeded in 65% of its episodes, 15 points more than in the week of 2026-03-02.",
        f"{last} took 15 s for a success, 25% less than in the week of 2026-03-02.",
        "In the week of 2026-03-02 walker took 10 turns for a success.",
        f"{last} was rated +0.40 by people, 0.60 more than in the week of 2026-03-02.",
        "3 of 4 trainings were proven.",
        "A training changed the held-out return by +0.15 on average.",
        "3 promotions and 1 rollback, 1 of them though as good as the others.",
    ]
    head = "WEEK OF EPISODES SUCCESS SECONDS TURNS SATISFACTION REWARD TRAININGS TRAINED GAIN"
    assert said[8].split() == f"{head} PROMOTIONS ROLLBACKS FALSE".split()
    assert said[10].split() == [
        "2026-03-09",
        "100",
        "65%",
        "15",
        "+0.40",
        "0.3",
        "2",
        "100%",
        "+0.2",
        "2",
        "1",
        "1",
    ]


def test_a_weeks_gain_weighs_as_much_as_the_runs_that_have_one() -> None:
    """Nine runs that failed gained nothing that is known, neither good nor bad."""
    lucky = FIRST | {"trainings": 10, "training_success_rate": 0.1, "gains": 1, "gain_per_training": 1.0}
    later = LAST | {"trainings": 1, "training_success_rate": 1.0, "gains": 1, "gain_per_training": 0.0}
    assert "A training changed the held-out return by +0.5 on average." in told(World(lucky, later))


def test_an_agent_without_a_figure_has_one_sentence() -> None:
    assert told(World()) == "walker has no episode, training or deployment in the last 8 weeks"
    said = told(World({"week": "2026-03-02", "episodes": 3}))
    assert said.splitlines() == ["", "WEEK OF     EPISODES", "2026-03-02  3"]


def test_too_many_weeks_are_refused() -> None:
    with pytest.raises(CommandError, match="--weeks 0: give 1 to 104"):
        told(World(), "--weeks", "0")


def test_a_gain_is_in_units_of_return_whatever_the_return_before() -> None:
    """From 0.01 to 0.24 is +0.23, which tells more than +2300 %."""
    assert "held-out return by +0.226 on average." in told(World(FIRST | {"gain_per_training": 0.2264}))
    assert "held-out return by -131 on average." in told(World(FIRST | {"gain_per_training": -131.2}))


def test_the_sentences_count_in_singular_and_plural() -> None:
    one = FIRST | {"trainings": 1, "training_success_rate": 1.0, "rollbacks": 2, "false_rollbacks": 0}
    said = told(World(one))
    assert "1 of 1 training was proven." in said
    assert "1 promotion and 2 rollbacks, 0 of them though as good as the others." in said
