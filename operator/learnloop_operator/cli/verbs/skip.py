"""`kubectl learnloop skip NAME`: pass the current step without its evidence, or end the guard a new model waits for."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "skip"
HELP = "pass the current step of a canary without its evidence, or end the guard that a new model waits for"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Exactly the step that is shown now; refused by the operator while a check is breached."""
    rollout = look(cluster, options.name)
    if waiting := rollout.waiting():
        rollout.order(NAME, waiting)
        return f"asked to begin {waiting} now; `kubectl learnloop why {options.name}` says what became of it"
    if rollout.status.get("step") is None:
        rollout.trial()
        raise rollout.refusal("is at no step yet")
    rollout.order(NAME, rollout.at_step())
    return f"asked to skip {rollout.where}; `kubectl learnloop why {options.name}` says what became of it"
