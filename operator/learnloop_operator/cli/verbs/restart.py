"""`kubectl learnloop restart NAME`: the rollout of this canary begins anew."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "restart"
HELP = "begin a canary's rollout anew at the first step, without its evidence"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """From the first step."""
    rollout = look(cluster, options.name)
    revision = rollout.trial()["revision"]
    rollout.order(NAME, revision)
    return f"{revision} starts over at the first step"
