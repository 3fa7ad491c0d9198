"""`kubectl learnloop retry NAME`: forget that a revision was taken back, and try it again."""

import argparse
import time

from learnloop_api.names import ANNOTATION_ABORT, ANNOTATION_RETRY
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.output import status as status_of

NAME = "retry"
HELP = "try a revision again that was rolled back"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Unblock; an abort that was meant for the first try goes with it."""
    status = status_of(cluster.get("modeldeployments", options.name))
    pinned = status.get("blockedRevision")
    if not pinned:
        raise CommandError(f"ModelDeployment {options.name!r} has no blocked revision: there is nothing to retry")
    values = {ANNOTATION_RETRY: str(time.time_ns()), ANNOTATION_ABORT: None}
    cluster.annotate("modeldeployments", options.name, values)
    return f"{pinned['revision']} may try again; it was taken back because: {pinned['message']}"
