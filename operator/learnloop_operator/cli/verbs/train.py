"""`kubectl learnloop train NAME`: train now."""

import argparse

from learnloop_api.names import ANNOTATION_TRAIN
from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.steering.signature import signed
from learnloop_operator.cli.text.aligned_rows import status as status_of

NAME = "train"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which agent."""
    parser.add_argument("name", help="a LearningAgent")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Ask; the operator answers with a TrainingJob."""
    agent = cluster.get("learningagents", options.name)
    spec = agent["spec"]
    if not spec.get("training"):
        raise CommandError(f"spec.training of LearningAgent {options.name!r} is missing: it says how to train; set it")
    if spec.get("suspend"):
        raise CommandError(f"spec.suspend of LearningAgent {options.name!r} is true: set it to false first")
    cluster.annotate("learningagents", options.name, {ANNOTATION_TRAIN: signed(cluster, "now")})
    last = status_of(agent).get("lastTraining") or {}
    if last and last.get("phase") not in ("Validated", "Failed"):
        return f"{last['name']} is running; the next run follows when it has ended"
    return f"asked for {options.name}-{(status_of(agent).get('trainings') or 0) + 1}"
