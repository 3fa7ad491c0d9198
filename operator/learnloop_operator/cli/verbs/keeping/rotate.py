"""`kubectl learnloop rotate SECRET`: a new value comes beside the old one, and the parts read both."""

import argparse
import base64
import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from learnloop_api.names import EPISODE_KEY
from learnloop_api.wire.routing import episodes_secret
from learnloop_common.key_lines import KeyLines
from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.access.secrets import SecretReference, Secrets
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verbs.keeping import installation_options

NAME = "rotate"
SETTLE_SECONDS = 900.0
"""Until a new key signs: by then all who verify have read it."""
MOUNTED_SECONDS = 300.0
"""For kubelets to mount what a Secret says anew."""


def _password() -> str:
    return "".join(secrets.choice(string.ascii_letters) for _ in range(40))


def _seed() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


ADD, ANNOUNCE, USE, ALONE = "add", "announce", "use", "alone"
"""What is done to the lines: a new first one, a new last one, the new one comes first, the first one alone stays."""
DATA, NATS, MEMORY = "data", "nats", "memory"
"""Who reads it when it starts: the data plane, the servers of NATS, the pods of a MemoryService."""
Steps = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Rotated:
    """How one secret is rotated.

    Attributes:
        make: a new value.
        old: what is true of the old value afterwards.
        steps: what is done to the lines, and whose pods are replaced after it, in this order.
        settles: seconds until a new value is used; who verifies has it at once.
        variable: of the pods that use it; where it is not set nothing uses the secret.
        unused: why not, and what to do.
        kept: why `--forget` takes nothing away.
    """

    make: Callable[[], str]
    old: str
    steps: Steps
    settles: float = 0.0
    variable: str | None = None
    unused: str = ""
    kept: str = ""

    @property
    def ends(self) -> bool:
        """The old value ends as soon as every part has the new one; else it stays, for what it signed stays."""
        return any(change == ALONE for change, _ in self.steps)

    @property
    def readers(self) -> tuple[str, ...]:
        """Whose pods are replaced."""
        return tuple({reader: None for _, readers in self.steps for reader in readers})


ENDED = "the old value holds no longer"
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
        kept=ENDS_BY_ITSELF,
    ),
    "nats-password": Rotated(
        _password,
        ENDED,
        # Servers know a user before anybody comes as it.
        ((ADD, (NATS, DATA)), (ALONE, (NATS, DATA))),
        variable="LEARNLOOP_NATS_PASSWORD_FILE",
        unused=EMBEDDED,
        kept=ENDS_BY_ITSELF,
    ),
    "nats-issuer-key": Rotated(
        _seed,
        ENDED,
        # A server believes one key, and the data plane signs by the one that each server believes.
        ((ANNOUNCE, (DATA,)), (USE, (NATS,)), (ALONE, (DATA,))),
        variable="LEARNLOOP_NATS_ISSUER_KEY_FILE",
        unused=EMBEDDED,
        kept=ENDS_BY_ITSELF,
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
        # What it wrapped means nothing to who lacks it.
        ((ANNOUNCE, (DATA,)), (USE, (DATA,))),
        variable="LEARNLOOP_ENCRYPTION_KEYS",
        unused="nothing is encrypted (dataPlane.encryption.enabled)",
        kept="an old key that still wraps something would be gone for ever; "
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
        kept=ENDS_BY_ITSELF,
    ),
    "memory-audit-key": Rotated(
        _seed, VERIFIES, ((ADD, (MEMORY,)),), settles=SETTLE_SECONDS, variable="LEARNLOOP_AUDIT_KEY"
    ),
}


MEMORY_SECRETS = {"memory-password": ("postgres", "postgres-password"), "memory-audit-key": ("audit", "audit-key")}
"""Of a MemoryService: the end of the Secret's name, and the key."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which secret, and of what."""
    parser.add_argument("secret", choices=KINDS, help="which")
    parser.add_argument(
        "of", nargs="?", help="episode-key: the ModelDeployment; memory-…: the MemoryService; webhook-key: SECRET/KEY"
    )
    parser.add_argument("--forget", action="store_true", help="no new value: the old ones hold no longer")
    installation_options.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Add a value and replace the pods that read it; or, with --forget, take the old ones away."""
    how, (namespace, secret, key) = KINDS[options.secret], _place(cluster, options)
    held = cluster.secrets(namespace)
    if options.forget and how.kept:
        raise CommandError(f"{options.secret}: {how.kept}")
    readers = {reader: _workload(held, reader, options, running=how.ends) for reader in how.readers}
    if readers:
        deployment = next(where for where in (readers.get(DATA), readers.get(MEMORY)) if where)
        environment = held.environment(deployment.name) or {}
        _refuse_what_nothing_uses(options.secret, environment, SecretReference(secret, key))

    def read_by(who: tuple[str, ...]) -> None:
        for reader in who:
            if not held.restart(*readers[reader], options.timeout):
                raise CommandError(
                    f"{readers[reader].kind} {readers[reader].name} is gone: begin again when it is back"
                )

    if options.forget:
        gone = _change(held, secret, key, lambda lines: lines.alone()).values[1:]
        read_by(how.readers)
        return "\n".join([f"{options.secret}: its newest value alone holds now", *_aftermath(options.secret, gone)])
    value, since = how.make(), time.time() + how.settles if how.settles else 0.0
    changes: dict[str, Callable[[KeyLines], str]] = {
        ADD: lambda lines: _followed(lines, value, since),
        ANNOUNCE: lambda lines: lines.announcing(value),
        USE: lambda lines: lines.using(value),
        ALONE: lambda lines: lines.alone(),
    }
    for change, who in how.steps:
        _change(held, secret, key, changes[change])
        read_by(who)
    if how.ends:
        return f"{options.secret}: rotated; {how.old}"
    later = f"used from {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(since))} on" if since else "used from now on"
    return f"{options.secret}: rotated, {later}; {how.old}"


class Workload(NamedTuple):
    """Whose pods are replaced."""

    kind: str
    name: str


def _workload(held: Secrets, reader: str, options: argparse.Namespace, *, running: bool) -> Workload:
    """The first that is there. Raises CommandError: there is none, or no pod of it could take the new value."""
    release = options.release
    candidates = {
        DATA: (Workload("Deployment", f"{release}-data"),),
        NATS: (Workload("StatefulSet", f"{release}-nats"), Workload("StatefulSet", f"{release}-nats-cluster")),
        MEMORY: (Workload("Deployment", f"{options.of}-memory"),),
    }[reader]
    for workload in candidates:
        pods = held.pods(*workload)
        if pods is None:
            continue
        if running and not pods:
            raise CommandError(
                f"{options.secret}: {workload.name} runs no pod that could take the new value: start one"
            )
        return workload
    if reader == MEMORY:
        raise CommandError(f"there is no Deployment {candidates[0].name}: name a MemoryService of the namespace")
    first = candidates[0]
    raise CommandError(f"there is no {first.kind} {first.name} here: name the installation with --release")


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


def _followed(lines: KeyLines, value: str, since: float) -> str:
    try:
        return lines.followed_by(value, since)
    except ValueError as error:
        raise ValueError(f"{error}, or all but the newest by --forget") from None


def _aftermath(secret: str, gone: tuple[str, ...]) -> list[str]:
    """What somebody needs who wants to trust again what the values that are gone have signed."""
    if secret != "audit-key" or not gone:
        return []
    told = "what the others signed verifies only where dataPlane.audit.trustedKeys has their public keys:"
    return [told, *(public for value in gone if (public := _public_key(value)))]


def _public_key(seed: str) -> str | None:
    """As `python -m learnloop_dataplane.audit public-key` prints it; None: it is no key and signed nothing."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed, validate=True))
    except ValueError:
        return None
    return key.public_key().public_bytes_raw().hex()


def _change(held: Secrets, name: str, key: str, change: Callable[[KeyLines], str]) -> KeyLines:
    """Writes what `change` makes of the lines; returns them as they were."""
    text, version = held.read(name, key)
    try:
        lines = KeyLines.parse(text)
        changed = change(lines)
    except ValueError as error:
        raise CommandError(f"Secret {name}, key {key} {error}") from None
    held.write(name, key, changed, version)
    return lines


def _place(cluster: Cluster, options: argparse.Namespace) -> tuple[str, str, str]:
    if options.secret in MEMORY_SECRETS:
        if not options.of:
            raise CommandError(f"{options.secret}: name the MemoryService, e.g. rotate {options.secret} mem -n team-a")
        suffix, key = MEMORY_SECRETS[options.secret]
        return cluster.namespace, f"{options.of}-{suffix}", key
    if options.secret == "episode-key":
        if not options.of:
            raise CommandError("episode-key: name the ModelDeployment, e.g. rotate episode-key walker -n team-a")
        return cluster.namespace, episodes_secret(options.of), EPISODE_KEY
    if options.secret == "webhook-key":
        name, sign, key = (options.of or "").partition("/")
        if not (name and sign and key):
            raise CommandError("webhook-key: name SECRET/KEY, as dataPlane.notifications has them")
        return options.release_namespace, name, key
    if options.of:
        raise CommandError(f"{options.secret} belongs to the installation: leave {options.of!r} out")
    return options.release_namespace, f"{options.release}-credentials", options.secret
