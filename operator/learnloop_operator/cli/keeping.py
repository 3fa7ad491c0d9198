"""`backup` and `restore` of an installation, by Jobs of the chart's CronJobs."""

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
) -> str:
    """Make a backup and wait for it."""
    jobs = cluster.workloads(release_namespace)
    return jobs.end(jobs.start(f"{release}-backup", {}), timeout)


def restore(
    cluster: Cluster,
    backup: Annotated[str, typer.Argument(help="learnloop-TIME; default: the newest of the volume")] = "",
    release: Release = "learnloop",
    release_namespace: ReleaseNamespace = "learnloop-system",
    timeout: Timeout = 3600.0,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> str:
    """Stop the data plane, restore, start it again. It stays stopped when the restore fails."""
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
