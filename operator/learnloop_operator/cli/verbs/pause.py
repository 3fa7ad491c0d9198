"""`kubectl learnloop pause NAME`: hold a rollout where it is."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "pause"
HELP = "hold a canary at its weight; the checks go on"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Hold; a second time changes nothing."""
    rollout = look(cluster, options.name)
    revision, held = rollout.trial()["revision"], rollout.held
    if held and held["verb"] == "pause":
        return f"{revision} is on hold since {held['at']} already, by {held.get('by')}"
    rollout.order(NAME, revision)
    return f"{revision} holds at {rollout.where}; a breach still takes it back; `kubectl learnloop resume` ends it"
