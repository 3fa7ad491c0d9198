"""`kubectl learnloop restore`: reads a backup into an empty installation, or opens its sealed keys."""

import argparse
import json
import sys
from pathlib import Path

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verbs.keeping import installation_options

NAME = "restore"
DATA_PLANE_SECONDS = 300.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which backup; or a file of sealed keys and who opens it."""
    parser.add_argument("backup", nargs="?", default="", help="learnloop-TIME; default: the newest of the volume")
    installation_options.arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--keys", metavar="FILE", help="no restore: print the Secret in a backup's keys.sealed")
    parser.add_argument("--identity", metavar="FILE", help="--keys: the private key that `backup --keygen` wrote")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Stop the data plane, restore, start it again. It stays stopped when the restore fails."""
    if options.keys is not None:
        return _secret(options)
    if options.identity is not None:
        raise CommandError("--identity belongs to --keys: leave it out")
    data = f"{options.release}-data"
    if not options.yes:
        _confirm(f"Deployment {data} in {options.release_namespace}", options.release)
    jobs = cluster.jobs(options.release_namespace)
    before = jobs.scale(data, 0, DATA_PLANE_SECONDS)
    try:
        said = jobs.end(jobs.start(f"{options.release}-restore", {"BACKUP": options.backup}), options.timeout)
    except CommandError as error:
        raise CommandError(
            f"{error}; Deployment {data} stays at 0 replicas: mend what it says, restore again, or scale it to {before}"
        ) from error
    jobs.scale(data, max(before, 1), DATA_PLANE_SECONDS)
    return said


def _confirm(what: str, name: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError(f"this stops {what} and restores into its database: say so with --yes")
    print(
        f"This stops {what} and restores into its database. Type {name} to go on: ", end="", file=sys.stderr, flush=True
    )
    if sys.stdin.readline().strip() != name:
        raise CommandError("nothing was restored")


def _secret(options: argparse.Namespace) -> str:
    from learnloop_common.sealed_box import unseal

    if options.identity is None:
        raise CommandError("--keys: name the private key with --identity FILE")
    try:
        content = json.loads(unseal(Path(options.keys).read_bytes(), Path(options.identity).read_text()))
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"--keys {options.keys}: {error}") from error
    metadata = {"name": f"{options.release}-credentials", "namespace": options.release_namespace}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": content}
    return json.dumps(secret, indent=2)
