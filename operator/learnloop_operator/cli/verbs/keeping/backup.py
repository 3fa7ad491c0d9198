"""`kubectl learnloop backup`: makes a backup now, or the pair of keys that a backup's keys are sealed by."""

import argparse
import os

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verbs.keeping import installation_options

NAME = "backup"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which installation; or a file for a new private key."""
    installation_options.arguments(parser)
    parser.add_argument("--keygen", metavar="FILE", help="no backup: write a new private key, print its recipient")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Make one and wait for it."""
    if options.keygen is not None:
        return _make_keys(options.keygen)
    jobs = cluster.jobs(options.release_namespace)
    return jobs.end(jobs.start(f"{options.release}-backup", {}), options.timeout)


def _make_keys(path: str) -> str:
    from learnloop_common.sealed_box import new_identity

    private, recipient = new_identity()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"--keygen {path}: {error.strerror}; name a new file") from error
    with os.fdopen(handle, "w") as file:
        file.write(private + "\n")
    return f"backup.recipient: {recipient}"
