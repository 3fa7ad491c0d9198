"""`kubectl learnloop undo NAME`: back to the model before."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "undo"
HELP = "take a promoted model back: to the warm old arm, else to the last one on record"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Name the promoted revision that has to go."""
    rollout = look(cluster, options.name)
    status = rollout.status
    if rollout.canary:
        raise rollout.refusal("has a canary: `kubectl learnloop abort` takes that back")
    stable, previous, last = status.get("stable"), status.get("previous"), status.get("lastStable")
    to = previous or last
    if not stable or not to:
        raise rollout.refusal("has no earlier model on record: set spec.model to the one that shall serve")
    rollout.order(NAME, stable["revision"])
    if previous:
        return f"{stable['revision']} goes; {previous['revision']} is warm and serves again at once"
    return f"{stable['revision']} goes as soon as the pods of {to['uri']} can serve"
