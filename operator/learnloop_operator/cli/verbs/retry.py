"""`kubectl learnloop retry NAME`: forget that a revision was taken back, and try it again."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "retry"
HELP = "try a revision again that was rolled back"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Unblock."""
    rollout = look(cluster, options.name)
    pinned = rollout.status.get("blockedRevision")
    if not pinned:
        raise rollout.refusal("has no blocked revision: there is nothing to retry")
    rollout.order(NAME, pinned["revision"])
    return f"{pinned['revision']} may try again; it was taken back because: {pinned['message']}"
