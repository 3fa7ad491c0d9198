"""`kubectl learnloop approve NAME`: pass the pause a rollout waits at."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering import approval_reference
from learnloop_operator.cli.steering.rollout_order import look

NAME = "approve"
HELP = "let a rollout go on that waits for approval"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout, or which arm of the experiment at its step."""
    parser.add_argument("name", help="a ModelDeployment")
    parser.add_argument("--arm", help="the arm that goes on where an experiment waits for a person's choice")
    approval_reference.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Approve exactly the revision, and the gates or the step, that are shown now."""
    rollout = look(cluster, options.name)
    if rollout.held:
        raise rollout.refusal("is on hold: `kubectl learnloop resume` ends that")
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        raise rollout.refusal("waits for no approval")
    approval_reference.check(rollout, options)
    if options.arm:
        chosen = rollout.challenger(options.arm)
        rollout.order(NAME, rollout.at_step(chosen))
        return f"approved {options.arm} ({chosen}) at {rollout.where}"
    gates = rollout.status.get("gates") or {}
    if gates.get("phase") == "AwaitingApproval" and gates.get("revision") == rollout.canary["revision"]:
        rollout.order(NAME, str(rollout.canary["revision"]))
        return f"approved {rollout.canary['revision']} at its gates"
    winner = rollout.winner()
    if winner not in (None, rollout.canary["revision"]):
        raise rollout.refusal(f"waits for the approval of another arm than the canary: name it with --arm ({winner})")
    rollout.order(NAME, rollout.at_step())
    return f"approved {rollout.canary['revision']} at {rollout.where}"
