"""`kubectl learnloop retry NAME`: forget that a revision was taken back, and try it again."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.steering.rollout_order import look

NAME = "retry"
HELP = "try a revision again that was rolled back"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--revision", help="this one; left out, the one that is in the way of the wished model")
    which.add_argument("--all", action="store_true", help="all that are blocked")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Unblock."""
    rollout = look(cluster, options.name)
    first = rollout.status.get("blockedRevision")
    if not first:
        raise rollout.refusal("has no blocked revision: there is nothing to retry")
    known = rollout.status.get("blockedRevisions") or [first]
    revisions = ", ".join(pin["revision"] for pin in known)
    if options.all:
        rollout.order(NAME, "all")
        return f"{revisions} may try again"
    pinned = next((pin for pin in known if pin["revision"] == options.revision), None) if options.revision else first
    if pinned is None:
        raise rollout.refusal(f"has not blocked --revision {options.revision!r}: it has {revisions}")
    rollout.order(NAME, pinned["revision"])
    return f"{pinned['revision']} may try again; it was taken back because: {pinned['message']}"
