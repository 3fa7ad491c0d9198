"""`kubectl learnloop abort NAME`: take the newest arm back now."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "abort"
HELP = "roll the canary, a model still being guarded, or one arm of an experiment back now"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout, or which arm of its experiment."""
    parser.add_argument("name", help="a ModelDeployment")
    parser.add_argument(
        "--arm", help="name of an arm of the experiment; the others go on, unless it is the canary of a step"
    )


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Name the arm that has to go."""
    rollout = look(cluster, options.name, to_take_back=True)
    status = rollout.status
    if options.arm:
        revision = rollout.challenger(options.arm)
        rollout.order(NAME, revision)
        if rollout.canary and rollout.canary["revision"] == revision:
            return f"taking {options.arm}, the canary, back: its experiment ends with it"
        return f"taking {options.arm} out of the experiment; the others go on"
    arm = rollout.canary or (status.get("stable") if status.get("previous") else None)
    if not arm:
        raise rollout.refusal(
            "has neither a canary nor a warm old arm: `kubectl learnloop undo` takes a promoted model back"
        )
    rollout.order(NAME, arm["revision"])
    return f"taking {arm['revision']} back; `kubectl learnloop why {options.name}` says when it is done"
