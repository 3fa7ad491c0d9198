"""`rotate`: a new value joins the old one in a Secret, and the parts read both."""

import base64
import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from learnloop_api.names import EPISODE_KEY
from learnloop_api.wire.routing import episodes_secret
from learnloop_common.key_lines import KeyLines
from learnloop_operator.cli.keeping import Release, ReleaseNamespace, Timeout
from learnloop_operator.cli.objects import Cluster, CommandError, SecretReference, UsageError

if TYPE_CHECKING:
    from learnloop_operator.cli.workloads import Workloads
else:
    Workloads = Any

SETTLE_SECONDS = 900.0
"""Until a new key signs: by then every verifier has read it."""
MOUNTED_SECONDS = 300.0
"""Until every kubelet has mounted the changed Secret."""


def _password() -> str:
    return "".join(secrets.choice(string.ascii_letters) for _ in range(40))


def _seed() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


ADD, ANNOUNCE, USE, ALONE = "add", "announce", "use", "alone"
"""Changes of the lines: add a new first one, add a new last one, move the new one first, keep the first one alone."""
DATA, NATS, MEMORY = "data", "nats", "memory"
"""Readers at start: the data plane, the servers of NATS, the pods of a MemoryService."""
Steps = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Rotated:
    """How one secret is rotated.

    Attributes:
        make: a new value.
        old: the validity of the old value afterwards.
        steps: changes of the lines, each with the readers whose pods are replaced after it.
        settles: seconds before the new value signs; verification accepts it immediately.
        variable: of the pods that use it; where it is not set nothing uses the secret.
        unused: why not, and what to do.
        keep: why `--forget` is refused.
    """

    make: Callable[[], str]
    old: str
    steps: Steps
    settles: float = 0.0
    variable: str | None = None
    unused: str = ""
    keep: str = ""

    @property
    def ends(self) -> bool:
        """Whether the old value ends as soon as every reader has the new one."""
        return any(change == ALONE for change, _ in self.steps)

    @property
    def readers(self) -> tuple[str, ...]:
        """Parts whose pods are replaced."""
        return tuple({reader: None for _, readers in self.steps for reader in readers})


END_IT_FIRST = "end it by --forget first"
ENDED = "the old value is not valid any more"
VERIFIES = "the old value still verifies, until you say --forget"
ENDS_BY_ITSELF = "the old value ends by itself; where a rotation broke off, rotate once more"
EMBEDDED = "NATS is a server of your own (nats.external); docs/how-to/rotate-secrets.md says how to change it"
KINDS = {
    "database-password": Rotated(
        _password,
        ENDED,
        ((ADD, (DATA,)), (ALONE, (DATA,))),
        variable="LEARNLOOP_DATABASE_PASSWORD_FILE",
        unused="the data plane's login is in a Secret of your own (postgresql.external.dsnSecret); "
        "docs/how-to/rotate-secrets.md says how to change it",
    ),
    "postgres-password": Rotated(
        _password,
        ENDED,
        ((ADD, (DATA,)), (ALONE, (DATA,))),
        variable="LEARNLOOP_ADMIN_PASSWORD",
        unused="the data plane knows no superuser's password (postgresql.external)",
        keep=ENDS_BY_ITSELF,
    ),
    "nats-password": Rotated(
        _password,
        ENDED,
        # The servers must know a user before a client logs in as it.
        ((ADD, (NATS, DATA)), (ALONE, (NATS, DATA))),
        variable="LEARNLOOP_NATS_PASSWORD_FILE",
        unused=EMBEDDED,
        keep=ENDS_BY_ITSELF,
    ),
    "nats-issuer-key": Rotated(
        _seed,
        ENDED,
        # A server believes one key, and the data plane signs by the one that each server believes.
        ((ANNOUNCE, (DATA,)), (USE, (NATS,)), (ALONE, (DATA,))),
        variable="LEARNLOOP_NATS_ISSUER_KEY_FILE",
        unused=EMBEDDED,
        keep=ENDS_BY_ITSELF,
    ),
    "audit-key": Rotated(_seed, VERIFIES, ((ADD, (DATA,)),), settles=SETTLE_SECONDS),
    "pseudonym-key": Rotated(
        _password,
        "what the old value made is still known, until you say --forget",
        ((ADD, (DATA,)),),
        settles=SETTLE_SECONDS,
    ),
    "encryption-keys": Rotated(
        lambda: f"k{time.time_ns():x} {_seed()}",
        "the old key still unwraps; docs/how-to/encrypt-experience.md says when its line may go",
        # A reader without the key cannot open what it wrapped.
        ((ANNOUNCE, (DATA,)), (USE, (DATA,))),
        variable="LEARNLOOP_ENCRYPTION_KEYS",
        unused="nothing is encrypted (dataPlane.encryption.enabled)",
        keep="an old key that still wraps something would be lost for good; "
        "docs/how-to/encrypt-experience.md says how to see that none does, and which line to take out",
    ),
    "episode-key": Rotated(_password, VERIFIES, ((ADD, ()),), settles=MOUNTED_SECONDS),
    "webhook-key": Rotated(_password, "the old value signs as well, until you say --forget", ((ADD, ()),)),
    "memory-password": Rotated(
        _password,
        ENDED,
        ((ADD, (MEMORY,)), (ALONE, (MEMORY,))),
        variable="LEARNLOOP_DATABASE_PASSWORD",
        unused="the MemoryService's database is yours (spec.dsnSecretRef): make a second login there, "
        "change the Secret, restart the pods",
        keep=ENDS_BY_ITSELF,
    ),
    "memory-audit-key": Rotated(
        _seed, VERIFIES, ((ADD, (MEMORY,)),), settles=SETTLE_SECONDS, variable="LEARNLOOP_AUDIT_KEY"
    ),
}


MEMORY_SECRETS = {"memory-password": ("postgres", "postgres-password"), "memory-audit-key": ("audit", "audit-key")}
"""Of a MemoryService: the end of the Secret's name, and the key."""


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
    readers = {reader: _workload(held, secret, reader, release, of, running=how.ends) for reader in how.readers}
    if readers:
        deployment = next(where for where in (readers.get(DATA), readers.get(MEMORY)) if where)
        environment = held.environment(deployment.name) or {}
        _refuse_what_nothing_uses(secret, environment, SecretReference(name, key))

    def restart(parts: tuple[str, ...]) -> None:
        for part in parts:
            workload = readers[part]
            if not held.restart(*workload, timeout):
                raise CommandError(f"{workload.kind} {workload.name} is gone: begin again when it is back")

    if forget:
        gone = _change(held, name, key, lambda lines: lines.alone()).values[1:]
        restart(how.readers)
        return "\n".join([f"{secret}: its newest value alone is valid now", *_aftermath(secret, gone)])
    if not how.ends and len(KeyLines.parse(held.read(name, key)[0]).values) > 1:
        raise CommandError(f"{secret}: the value before the current one is still valid; {how.keep or END_IT_FIRST}")
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
        return f"{secret}: rotated; {how.old}"
    later = f"used from {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(since))} on" if since else "used from now on"
    return f"{secret}: rotated, {later}; {how.old}"


class Workload(NamedTuple):
    """A workload whose pods are replaced."""

    kind: str
    name: str


def _workload(held: Workloads, secret: str, reader: str, release: str, of: str | None, *, running: bool) -> Workload:
    """The first that exists. Raises CommandError: none does, or no pod of it could take the new value."""
    candidates = {
        DATA: (Workload("Deployment", f"{release}-data"),),
        NATS: (Workload("StatefulSet", f"{release}-nats"), Workload("StatefulSet", f"{release}-nats-cluster")),
        MEMORY: (Workload("Deployment", f"{of}-memory"),),
    }[reader]
    for workload in candidates:
        pods = held.pods(*workload)
        if pods is None:
            continue
        if running and not pods:
            raise CommandError(f"{secret}: {workload.name} runs no pod that could take the new value: start one")
        return workload
    first = candidates[0]
    if reader == MEMORY:
        raise CommandError(f"Deployment {first.name} does not exist: name a MemoryService of the namespace")
    raise CommandError(f"{first.kind} {first.name} does not exist here: name the installation with --release")


def _refuse_what_nothing_uses(
    secret: str, environment: dict[str, str | SecretReference], place: SecretReference
) -> None:
    how = KINDS[secret]
    if how.variable is None:
        return
    if how.variable not in environment:
        raise CommandError(f"{secret}: nothing uses it, for {how.unused}")
    used = environment[how.variable]
    if isinstance(used, SecretReference) and used != place:
        raise CommandError(
            f"{secret}: nothing uses it, for {how.variable} comes from the key {used.key} of Secret {used.secret}: "
            "change it there, as docs/how-to/rotate-secrets.md says"
        )


def _aftermath(secret: str, gone: tuple[str, ...]) -> list[str]:
    """Public keys of removed audit keys, by which their signatures can still be verified."""
    if secret != "audit-key" or not gone:
        return []
    advice = "signatures of the others verify only where dataPlane.audit.trustedKeys has their public keys:"
    return [advice, *(public for value in gone if (public := _public_key(value)))]


def _public_key(seed: str) -> str | None:
    """As `python -m learnloop_dataplane.audit public-key` prints it; None: not a key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed, validate=True))
    except ValueError:
        return None
    return key.public_key().public_bytes_raw().hex()


def _change(held: Workloads, name: str, key: str, change: Callable[[KeyLines], str]) -> KeyLines:
    """Writes what `change` makes of the lines; returns them as they were."""
    text, version = held.read(name, key)
    try:
        lines = KeyLines.parse(text)
        changed = change(lines)
    except ValueError as error:
        raise CommandError(f"Secret {name}, key {key} {error}") from None
    held.write(name, key, changed, version)
    return lines


def _place(cluster: Cluster, secret: str, of: str | None, release: str, release_namespace: str) -> tuple[str, str, str]:
    """Namespace, Secret and key."""
    if secret in MEMORY_SECRETS:
        if not of:
            raise CommandError(f"{secret}: name the MemoryService, e.g. rotate {secret} mem -n team-a")
        suffix, key = MEMORY_SECRETS[secret]
        return cluster.namespace, f"{of}-{suffix}", key
    if secret == "episode-key":
        if not of:
            raise CommandError("episode-key: name the ModelDeployment, e.g. rotate episode-key walker -n team-a")
        return cluster.namespace, episodes_secret(of), EPISODE_KEY
    if secret == "webhook-key":
        name, sign, key = (of or "").partition("/")
        if not (name and sign and key):
            raise CommandError("webhook-key: name SECRET/KEY, as dataPlane.notifications.keySecret has them")
        return release_namespace, name, key
    if of:
        raise CommandError(f"{secret} belongs to the installation: leave {of!r} out")
    return release_namespace, f"{release}-credentials", secret
