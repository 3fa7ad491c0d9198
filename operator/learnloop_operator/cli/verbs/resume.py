"""`kubectl learnloop resume NAME`: end a hold."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "resume"
HELP = "let a canary go on that was put on hold"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Go on; a rollout that is not on hold needs another verb, or none."""
    rollout = look(cluster, options.name)
    revision = rollout.trial()["revision"]
    if not rollout.held or rollout.held["verb"] != "pause":
        raise rollout.refusal("is not on hold; `kubectl learnloop approve` passes a step that waits for approval")
    rollout.order(NAME, revision)
    return f"{revision} goes on at {rollout.where}"
