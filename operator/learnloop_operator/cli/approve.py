"""`kubectl learnloop approve NAME`: pass the pause a rollout waits at."""

import argparse

from learnloop_api.names import ANNOTATION_APPROVE
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.output import status as status_of

NAME = "approve"
HELP = "let a paused rollout go on"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Approve exactly the revision and the step that are shown now."""
    status = status_of(cluster.get("modeldeployments", options.name))
    canary, step = status.get("canary"), status.get("step")
    if status.get("phase") != "Paused" or not canary or step is None:
        said = status.get("verdict") or "the operator has not looked at it yet"
        raise CommandError(f"ModelDeployment {options.name!r} waits for no approval ({status.get('phase')}): {said}")
    value = f"{canary['revision']}/{step + 1}"
    cluster.annotate("modeldeployments", options.name, {ANNOTATION_APPROVE: value})
    return f"approved {canary['revision']} at step {status.get('stepText')} ({status.get('weight')} %)"
