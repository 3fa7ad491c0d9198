"""`backup`, `restore` and `rotate`: the chart's Jobs, and new values of secrets next to the old ones."""

import base64
import secrets
import string
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from learnloop_api.names import EPISODE_KEY
from learnloop_api.wire.routing import episodes_secret
from learnloop_common.key_lines import KeyLines
from learnloop_operator.cli.audit import confirm
from learnloop_operator.cli.objects import Cluster, CommandError, SecretReference, UsageError

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


if TYPE_CHECKING:
    from learnloop_operator.cli.workloads import Workloads
else:
    Workloads = Any

SETTLE_SECONDS = 900.0
"""Until a new key signs: by then every verifier has read it."""
MOUNTED_SECONDS = 300.0
"""Until every kubelet has mounted the changed Secret."""
ADD, ANNOUNCE, USE, ALONE = "add", "announce", "use", "alone"
"""Changes of the lines: add a new first one, add a new last one, move the new one first, keep the first one alone."""
DATA, NATS, MEMORY = "data", "nats", "memory"
"""Readers at start: the data plane, the servers of NATS, the pods of a MemoryService."""
FILES = "/run/credentials/"


def _password() -> str:
    return "".join(secrets.choice(string.ascii_letters) for _ in range(40))


def _seed() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


class Rotated(NamedTuple):
    """How one secret is rotated.

    Attributes:
        make: a new value.
        steps: changes of the lines, each with the readers whose pods are replaced after it.
        settles: seconds before the new value signs; verification accepts it immediately.
        keep: why `--forget` is refused.
    """

    make: Callable[[], str]
    steps: tuple[tuple[str, tuple[str, ...]], ...]
    settles: float = 0.0
    keep: str = ""

    @property
    def ends(self) -> bool:
        """Whether the old value ends as soon as every reader has the new one."""
        return self.steps[-1][0] == ALONE

    @property
    def readers(self) -> tuple[str, ...]:
        """Parts whose pods are replaced."""
        return tuple({reader: None for _, readers in self.steps for reader in readers})


BY_ITSELF = "the old value ends by itself; where a rotation broke off, rotate once more"
WRAPS = "an old key may still wrap data keys; docs/how-to/encrypt-experience.md says when its line may go"
KINDS = {
    "database-password": Rotated(_password, ((ADD, (DATA,)), (ALONE, (DATA,))), keep=BY_ITSELF),
    "postgres-password": Rotated(_password, ((ADD, (DATA,)), (ALONE, (DATA,))), keep=BY_ITSELF),
    # The servers must know a user before a client logs in as it.
    "nats-password": Rotated(_password, ((ADD, (NATS, DATA)), (ALONE, (NATS, DATA))), keep=BY_ITSELF),
    # A server believes one key, and the data plane signs by the one that each server believes.
    "nats-issuer-key": Rotated(_seed, ((ANNOUNCE, (DATA,)), (USE, (NATS,)), (ALONE, (DATA,))), keep=BY_ITSELF),
    "audit-key": Rotated(_seed, ((ADD, (DATA,)),), SETTLE_SECONDS),
    "pseudonym-key": Rotated(_password, ((ADD, (DATA,)),), SETTLE_SECONDS),
    # A reader without the key cannot open what it wrapped.
    "encryption-keys": Rotated(
        lambda: f"k{time.time_ns():x} {_seed()}", ((ANNOUNCE, (DATA,)), (USE, (DATA,))), keep=WRAPS
    ),
    "episode-key": Rotated(_password, ((ADD, ()),), MOUNTED_SECONDS),
    "webhook-key": Rotated(_password, ((ADD, ()),)),
    "memory-password": Rotated(_password, ((ADD, (MEMORY,)), (ALONE, (MEMORY,))), keep=BY_ITSELF),
    "memory-audit-key": Rotated(_seed, ((ADD, (MEMORY,)),), SETTLE_SECONDS),
}


def rotate(
    cluster: Cluster,
    secret: Annotated[str, typer.Argument(help=f"one of {', '.join(KINDS)}", metavar="SECRET")],
    of: Annotated[
        str | None,
        typer.Argument(help="episode-key: the ModelDeployment; memory-…: the MemoryService; webhook-key: SECRET/KEY"),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="no new value: end the old ones")] = False,
    release: Release = "learnloop",
    release_namespace: ReleaseNamespace = "learnloop-system",
    timeout: Timeout = 3600.0,
) -> str:
    """Add a value and replace the pods that read it; or, with --forget, remove the old ones."""
    if secret not in KINDS:
        raise UsageError(f"unknown secret {secret!r}: name one of {', '.join(KINDS)}")
    how, (namespace, name, key) = KINDS[secret], _place(cluster, secret, of, release, release_namespace)
    held = cluster.workloads(namespace)
    if forget and how.keep:
        raise CommandError(f"{secret}: {how.keep}")
    readers = {
        reader: _workload(held, secret, reader, of or "" if reader == MEMORY else release, how.ends)
        for reader in how.readers
    }
    for reader in {DATA, MEMORY} & set(readers):
        used = (held.environment(readers[reader][1]) or {}).values()
        if SecretReference(name, key) not in used and FILES + key not in used:
            raise CommandError(
                f"{secret}: no container of {readers[reader][1]} reads key {key} of Secret {name}: change the value "
                "that it reads, as docs/how-to/rotate-secrets.md says"
            )

    def restart(parts: tuple[str, ...]) -> None:
        for kind, workload in (readers[part] for part in parts):
            if not held.restart(kind, workload, timeout):
                raise CommandError(f"{kind} {workload} is gone: begin again when it is back")

    if forget:
        _change(held, name, key, lambda lines: lines.alone())
        restart(how.readers)
        return f"{secret}: its newest value alone is valid now"
    if not how.ends and len(KeyLines.parse(held.read(name, key)[0]).values) > 1:
        fix = how.keep or "end it by --forget first"
        raise CommandError(f"{secret}: the value before the current one is still valid; {fix}")
    value, since = how.make(), time.time() + how.settles if how.settles else 0.0
    changes: dict[str, Callable[[KeyLines], str]] = {
        ADD: lambda lines: lines.followed_by(value, since),
        ANNOUNCE: lambda lines: lines.announcing(value),
        USE: lambda lines: lines.using(value),
        ALONE: lambda lines: lines.alone(),
    }
    for change, parts in how.steps:
        _change(held, name, key, changes[change])
        restart(parts)
    if how.ends:
        return f"{secret}: rotated; the old value is not valid any more"
    used_from = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(since)) if since else "now"
    return f"{secret}: rotated, used from {used_from} on; the old value stays valid: {how.keep or 'end it by --forget'}"


def _workload(held: Workloads, secret: str, reader: str, owner: str, running: bool) -> tuple[str, str]:
    """Kind and name of the reader. Raises CommandError: it does not exist, or no pod could take the new value."""
    candidates = {
        DATA: [("Deployment", f"{owner}-data")],
        NATS: [("StatefulSet", f"{owner}-nats"), ("StatefulSet", f"{owner}-nats-cluster")],
        MEMORY: [("Deployment", f"{owner}-memory")],
    }[reader]
    for kind, name in candidates:
        pods = held.pods(kind, name)
        if running and pods == 0:
            raise CommandError(f"{secret}: {name} runs no pod that could take the new value: start one")
        if pods is not None:
            return kind, name
    fix = "name a MemoryService of the namespace" if reader == MEMORY else "name the installation with --release"
    raise CommandError(f"{' '.join(candidates[0])} does not exist: {fix}")


def _change(held: Workloads, name: str, key: str, change: Callable[[KeyLines], str]) -> None:
    text, version = held.read(name, key)
    try:
        changed = change(KeyLines.parse(text))
    except ValueError as error:
        raise CommandError(f"Secret {name}, key {key} {error}") from None
    held.write(name, key, changed, version)


def _place(cluster: Cluster, secret: str, of: str | None, release: str, release_namespace: str) -> tuple[str, str, str]:
    """Namespace, Secret and key."""
    owned = {
        "episode-key": (episodes_secret(of or ""), EPISODE_KEY, "ModelDeployment"),
        "memory-password": (f"{of}-postgres", "postgres-password", "MemoryService"),
        "memory-audit-key": (f"{of}-audit", "audit-key", "MemoryService"),
    }
    if secret in owned:
        name, key, kind = owned[secret]
        if not of:
            raise CommandError(f"{secret}: name the {kind}, e.g. rotate {secret} walker -n team-a")
        return cluster.namespace, name, key
    if secret == "webhook-key":
        name, sign, key = (of or "").partition("/")
        if not (name and sign and key):
            raise CommandError("webhook-key: name SECRET/KEY, as dataPlane.notifications.keySecret has them")
        return release_namespace, name, key
    if of:
        raise CommandError(f"{secret} belongs to the installation: leave {of!r} out")
    return release_namespace, f"{release}-credentials", secret
