"""`progress` and `rewards`: the record of an agent's weeks and rewards."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from learnloop_operator.cli.data_plane import DataPlaneAccess
from learnloop_operator.cli.objects import Cluster, Object, condition, rows, status_of, table

SUSPECTED = "RewardHackingSuspected"
BIAS = "BiasSuspected"
COUNT, NUMBER, SHARE = "{:.0f}".format, "{:.3g}".format, "{:.0%}".format
COLUMNS: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("WEEK OF", "week", str),
    ("EPISODES", "episodes", COUNT),
    ("SUCCESS", "success_rate", SHARE),
    ("SECONDS", "completion_seconds", NUMBER),
    ("TURNS", "turns", NUMBER),
    ("SATISFACTION", "satisfaction", "{:+.2f}".format),
    ("REWARD", "raw_reward", NUMBER),
    ("TRAININGS", "trainings", COUNT),
    ("TRAINED", "training_success_rate", SHARE),
    ("GAIN", "gain_per_training", "{:+.3g}".format),
    ("PROMOTIONS", "promotions", COUNT),
    ("ROLLBACKS", "rollbacks", COUNT),
    ("FALSE", "false_rollbacks", COUNT),
)


def progress(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    weeks: Annotated[int, typer.Option(min=1, max=104, help="how many weeks back")] = 8,
) -> str:
    """A table of weeks, the oldest first."""
    cluster.get("learningagents", name)
    counted: list[Object] = plane.ask("GET", f"/api/v1/agents/{name}/progress", {"weeks": str(weeks)})["weeks"]
    if not counted:
        return f"{name} has no episode, training or deployment in the last {weeks} weeks"
    # Columns without a figure in any week are left out.
    shown = [column for column in COLUMNS if any(week.get(column[1]) is not None for week in counted)]
    lines = [[text(week[field]) if week.get(field) is not None else "" for _, field, text in shown] for week in counted]
    return table([head for head, _, _ in shown], lines)


def rewards(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="how many episodes")] = 10,
) -> str:
    """The policy and what is suspected of it, then the rewards, newest first."""
    agent = cluster.get("learningagents", name)
    policy = cluster.get("rewardpolicies", agent["spec"]["rewardPolicyRef"]["name"])
    query = {"agent_id": name, "limit": str(limit)}
    history: list[Object] = plane.ask("GET", "/api/v1/rewards/history", query)["rewards"]
    suspicion, bias, state = condition(policy, SUSPECTED), condition(policy, BIAS), status_of(policy)
    head = rows(
        [
            ("policy", f"{policy['metadata']['name']}, revision {state.get('revision') or 'not published yet'}"),
            ("dry-run", (state.get("dryRun") or {}).get("message")),
            ("suspicion", suspicion.get("message") if suspicion.get("status") != "False" else None),
            ("bias", bias.get("message") if bias.get("status") != "False" else None),
        ]
    )
    return f"{head}\n\n{_rewards(history) if history else 'no episode is rewarded yet'}"


def _rewards(history: list[Object]) -> str:
    names = list(dict.fromkeys(name for reward in history for name in reward["components"]))
    head = ("TIME", "TRAJECTORY", "REWARD", "RAW", "SURE", *map(str.upper, names), "BROKEN")
    return table(head, (_reward(reward, names) for reward in history))


def _reward(reward: Object, names: list[str]) -> tuple[str, ...]:
    parts = reward["components"]
    return (
        reward["computed_at"][:19].replace("T", " "),
        reward["trajectory_id"],
        f"{reward['reward']:.3f}",
        f"{reward['raw_reward']:.3f}",
        f"{reward['confidence']:.0%}",
        *(f"{parts[name]:g}" if name in parts else "" for name in names),
        ", ".join(reward["violated"]),
    )
