"""`kubectl learnloop rewards AGENT`: what its newest episodes were worth, by which components; signs of gaming."""

import argparse

from learnloop_operator.cli.access import data_plane
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.access.data_plane import DataPlaneAccess
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.text.aligned_rows import condition, rows, status

NAME = "rewards"
MOST = 1000
SUSPECTED = "RewardHackingSuspected"
BIAS = "BiasSuspected"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Whose, and how many."""
    parser.add_argument("name", help="a LearningAgent")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="the newest so many (%(default)s)")
    data_plane.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """The policy and what is suspected of it, then the rewards, newest first."""
    if not 1 <= options.limit <= MOST:
        raise CommandError(f"--limit {options.limit}: give 1 to {MOST}")
    agent = cluster.get("learningagents", options.name)
    policy = cluster.get("rewardpolicies", agent["spec"]["rewardPolicyRef"]["name"])
    query = {"agent_id": options.name, "limit": str(options.limit)}
    found: list[Object] = DataPlaneAccess(cluster, options).ask("GET", "/api/v1/rewards/history", query)["rewards"]
    suspicion, bias, state = condition(policy, SUSPECTED), condition(policy, BIAS), status(policy)
    head = rows(
        [
            ("policy", f"{policy['metadata']['name']}, revision {state.get('revision') or 'not published yet'}"),
            ("dry-run", (state.get("dryRun") or {}).get("message")),
            ("suspicion", suspicion.get("message") if suspicion.get("status") != "False" else None),
            ("bias", bias.get("message") if bias.get("status") != "False" else None),
        ]
    )
    return f"{head}\n\n{_table(found) if found else 'no episode is rewarded yet'}"


def _table(found: list[Object]) -> str:
    names = list(dict.fromkeys(name for reward in found for name in reward["components"]))
    head = ("TIME", "TRAJECTORY", "REWARD", "RAW", "SURE", *map(str.upper, names), "BROKEN")
    lines = [head, *(_line(reward, names) for reward in found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _line(reward: Object, names: list[str]) -> tuple[str, ...]:
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
