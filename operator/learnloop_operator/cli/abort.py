"""`kubectl learnloop abort NAME`: take the newest arm back now."""

import argparse

from learnloop_api.names import ANNOTATION_ABORT
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.output import status as status_of

NAME = "abort"
HELP = "roll the canary, or a model still being guarded, back now"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Name the arm that has to go."""
    status = status_of(cluster.get("modeldeployments", options.name))
    arm = status.get("canary") or (status.get("stable") if status.get("previous") else None)
    if not arm:
        raise CommandError(
            f"ModelDeployment {options.name!r} has neither a canary nor a warm old arm ({status.get('phase')}): "
            "nothing to take back; to serve another model, change spec.model"
        )
    cluster.annotate("modeldeployments", options.name, {ANNOTATION_ABORT: arm["revision"]})
    return f"taking {arm['revision']} back; `kubectl learnloop why {options.name}` says when it is done"
