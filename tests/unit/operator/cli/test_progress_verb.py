"""`kubectl learnloop progress`: a table of the weeks."""

from testing.browsers.console_server import WrittenCluster
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
    "cpu_hours": 1.5,
    "gpu_hours": None,
    "money": 0.06,
    "currency": "EUR",
    "gain_per_hour": 0.13,
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


def cluster(*weeks) -> WrittenCluster:
    made = WrittenCluster(records={"/api/v1/agents/walker/progress": {"agent": "walker", "weeks": weeks}})
    made.objects["learningagents", "walker"] = {}
    return made


def test_the_table_has_a_row_for_every_week() -> None:
    plane = cluster(FIRST, LAST)
    lines = typed(plane, "progress", "walker", "--weeks", "4").splitlines()
    assert plane.requests == [("GET", "/api/v1/agents/walker/progress", {"weeks": "4"}, None)]
    head = "WEEK OF EPISODES SUCCESS SECONDS TURNS SATISFACTION REWARD TRAININGS TRAINED GAIN"
    head += " CPU-HOURS MONEY CURRENCY GAIN/HOUR"
    assert lines[0].split() == f"{head} PROMOTIONS ROLLBACKS FALSE".split()
    row = "2026-03-09 100 65% 15 +0.40 0.3 2 100% +0.2 1.5 0.06 EUR +0.13 2 1 1"
    assert lines[2].split() == row.split()


def test_an_agent_without_a_figure_has_one_sentence() -> None:
    assert typed(cluster(), "progress", "walker") == "walker has no episode, training or deployment in the last 8 weeks"
    output = typed(cluster({"week": "2026-03-02", "episodes": 3}), "progress", "walker")
    assert output.splitlines() == ["WEEK OF     EPISODES", "2026-03-02  3"]
