"""`kubectl learnloop reject NAME`: refuse the step a rollout waits at."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering import approval_reference
from learnloop_operator.cli.steering.rollout_order import look

NAME = "reject"
HELP = "refuse the step that waits for approval: the canary is taken back and blocked"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")
    approval_reference.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Refuse exactly the revision and the step that are shown now."""
    rollout = look(cluster, options.name, to_take_back=True)
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        raise rollout.refusal("waits for nobody; `kubectl learnloop abort` takes a canary back at any time")
    approval_reference.check(rollout, options)
    rollout.order(NAME, rollout.at_step())
    return f"rejected {rollout.canary['revision']} at {rollout.where}: it is taken back and blocked"
