"""`kubectl learnloop promote NAME`: to 100 % by hand."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.steering.rollout_order import look

NAME = "promote"
HELP = "promote a canary without the evidence of its remaining steps, or an experiment's winner that waits for it"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout, and which of its arms."""
    parser.add_argument("name", help="a ModelDeployment")
    parser.add_argument("--revision", help="the arm to promote; left out, the canary or the winner")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Name the revision; refused by the operator while a check is breached. Of a model that waits for the end of a
    guard it is the guard that ends, for it has no canary yet."""
    rollout = look(cluster, options.name)
    stable = (rollout.status.get("stable") or {}).get("revision")
    if options.revision and options.revision == stable and not rollout.canary:
        return f"{stable} is stable already"
    waiting = rollout.waiting()
    if waiting and options.revision in (None, waiting):
        rollout.order(NAME, waiting)
        return (
            f"asked to begin {waiting} now, as a canary; `kubectl learnloop why {options.name}` says what became of it"
        )
    candidate = (None if rollout.canary else rollout.winner()) or rollout.trial()["revision"]
    revision = options.revision or candidate
    if revision != candidate:
        raise CommandError(
            f"--revision {revision!r} is not the one to promote in {options.name!r}: that is {candidate}"
        )
    if rollout.held and rollout.held["verb"] == "pause":
        raise rollout.refusal("is on hold: `kubectl learnloop resume` first")
    rollout.order(NAME, revision)
    return f"asked to promote {revision}; `kubectl learnloop why {options.name}` says what became of it"
