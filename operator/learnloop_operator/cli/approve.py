"""`kubectl learnloop approve NAME`: pass the pause a rollout waits at."""

import argparse

from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.rollout import look

NAME = "approve"
HELP = "let a rollout go on that waits for approval"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Approve exactly the revision and the step that are shown now."""
    rollout = look(cluster, options.name)
    if rollout.held:
        raise rollout.refusal("is on hold: `kubectl learnloop resume` ends that")
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        raise rollout.refusal("waits for no approval")
    rollout.order(NAME, rollout.at_step())
    return f"approved {rollout.canary['revision']} at {rollout.where}"
