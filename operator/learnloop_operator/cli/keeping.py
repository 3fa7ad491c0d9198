"""`backup` and `restore` of an installation, by Jobs of the chart's CronJobs."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from learnloop_operator.cli.audit import confirm
from learnloop_operator.cli.objects import Cluster, CommandError

DATA_PLANE_SECONDS = 300.0
Release = Annotated[str, typer.Option(metavar="NAME", help="full name of the chart's objects")]
ReleaseNamespace = Annotated[str, typer.Option(metavar="NAME", help="the namespace of the installation")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="how long to wait")]


def backup(
    cluster: Cluster,
    release: Release = "learnloop",
    release_namespace: ReleaseNamespace = "learnloop-system",
    timeout: Timeout = 3600.0,
    keygen: Annotated[
        str | None, typer.Option(metavar="FILE", help="no backup: write a new private key, print its recipient")
    ] = None,
) -> str:
    """Make a backup and wait for it; or make the pair of keys that seals a backup's keys."""
    if keygen is not None:
        return _make_keys(keygen)
    jobs = cluster.workloads(release_namespace)
    return jobs.end(jobs.start(f"{release}-backup", {}), timeout)


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


def restore(
    cluster: Cluster,
    backup: Annotated[str, typer.Argument(help="learnloop-TIME; default: the newest of the volume")] = "",
    release: Release = "learnloop",
    release_namespace: ReleaseNamespace = "learnloop-system",
    timeout: Timeout = 3600.0,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    keys: Annotated[
        str | None, typer.Option(metavar="FILE", help="no restore: print the Secret in a backup's keys.sealed")
    ] = None,
    identity: Annotated[
        str | None, typer.Option(metavar="FILE", help="--keys: the private key that `backup --keygen` wrote")
    ] = None,
) -> str:
    """Stop the data plane, restore, start it again. It stays stopped when the restore fails."""
    if keys is not None:
        return _secret(keys, identity, release, release_namespace)
    if identity is not None:
        raise CommandError("--identity belongs to --keys: leave it out")
    data = f"{release}-data"
    if not yes:
        effect = f"stops Deployment {data} in {release_namespace} and restores into its database"
        confirm(f"This {effect}.", f"this {effect}", release, "nothing was restored")
    jobs = cluster.workloads(release_namespace)
    before = jobs.scale(data, 0, DATA_PLANE_SECONDS)
    try:
        sentence = jobs.end(jobs.start(f"{release}-restore", {"BACKUP": backup}), timeout)
    except CommandError as error:
        raise CommandError(
            f"{error}; Deployment {data} stays at 0 replicas: fix the cause, restore again, or scale it to {before}"
        ) from error
    jobs.scale(data, max(before, 1), DATA_PLANE_SECONDS)
    return sentence


def _secret(keys: str, identity: str | None, release: str, namespace: str) -> str:
    from learnloop_common.sealed_box import unseal

    if identity is None:
        raise CommandError("--keys: name the private key with --identity FILE")
    try:
        content = json.loads(unseal(Path(keys).read_bytes(), Path(identity).read_text()))
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"--keys {keys}: {error}") from error
    metadata = {"name": f"{release}-credentials", "namespace": namespace}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": content}
    return json.dumps(secret, indent=2)
