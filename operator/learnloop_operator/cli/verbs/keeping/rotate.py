"""`kubectl learnloop rotate SECRET`: a new value comes beside the old one, and the parts read both."""

import argparse
import base64
import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass

from learnloop_api.key_lines import KeyLines
from learnloop_api.names import EPISODE_KEY
from learnloop_api.wire.routing import episodes_secret
from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.access.secrets import Reference, Secrets
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verbs.keeping import installation_options

NAME = "rotate"
HELP = "give a secret a new value; the old one holds beside it for as long as anybody needs it"
SETTLE_SECONDS = 900.0
"""Until a new key signs: by then all who verify have read it."""
MOUNTED_SECONDS = 300.0
"""For kubelets to mount what a Secret says anew."""


def _password() -> str:
    return "".join(secrets.choice(string.ascii_letters) for _ in range(40))


def _seed() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True)
class Rotated:
    """How one secret is rotated.

    Attributes:
        make: a new value.
        old: what is true of the old value afterwards.
        settles: seconds until it is used; who verifies has it at once.
        announced: first all read it, and in a second step it is used: what it made means nothing to who lacks it.
        ends: the old value ends as soon as every part has the new one; else it stays, for what it signed stays.
        restarts: the data plane reads it when it starts.
        variable: of the data plane; where it is not set nothing uses the secret.
        unused: why not, and what to do.
    """

    make: Callable[[], str]
    old: str
    settles: float = 0.0
    announced: bool = False
    ends: bool = False
    restarts: bool = True
    variable: str | None = None
    unused: str = ""


KINDS = {
    "database-password": Rotated(
        _password,
        "the old value holds no longer",
        ends=True,
        variable="LEARNLOOP_DATABASE_PASSWORD_FILE",
        unused="the data plane's login is in a Secret of your own (postgresql.external.dsnSecret); "
        "docs/how-to/rotate-secrets.md says how to change it",
    ),
    "audit-key": Rotated(_seed, "the old value still verifies, until you say --forget", settles=SETTLE_SECONDS),
    "pseudonym-key": Rotated(
        _password, "what the old value made is still known, until you say --forget", settles=SETTLE_SECONDS
    ),
    "encryption-keys": Rotated(
        lambda: f"k{time.time_ns():x} {_seed()}",
        "the old key still unwraps; docs/how-to/encrypt-experience.md says when its line may go",
        announced=True,
        variable="LEARNLOOP_ENCRYPTION_KEYS",
        unused="nothing is encrypted (dataPlane.encryption.enabled)",
    ),
    "episode-key": Rotated(
        _password,
        "the old value still verifies, until you say --forget",
        settles=MOUNTED_SECONDS,
        restarts=False,
    ),
    "webhook-key": Rotated(_password, "the old value signs as well, until you say --forget", restarts=False),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which secret, and of what."""
    parser.add_argument("secret", choices=KINDS, help="which")
    parser.add_argument("of", nargs="?", help="episode-key: the ModelDeployment; webhook-key: SECRET/KEY of a receiver")
    parser.add_argument("--forget", action="store_true", help="no new value: the old ones hold no longer")
    installation_options.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Add a value and replace the pods that read it; or, with --forget, take the old ones away."""
    how, (namespace, name, key) = KINDS[options.secret], _place(cluster, options)
    held, data = cluster.secrets(namespace), f"{options.release}-data"
    missing = CommandError(f"there is no Deployment {data} in {namespace}: name the installation with --release")

    def everybody_reads_it() -> None:
        if how.restarts and not held.restart("Deployment", data, options.timeout):
            raise missing

    if options.forget and options.secret == "encryption-keys":
        raise CommandError(
            "encryption-keys: an old key that still wraps something would be gone for ever; "
            "docs/how-to/encrypt-experience.md says how to see that none does, and which line to take out"
        )
    if how.restarts:
        environment = held.environment(data)
        if environment is None:
            raise missing
        _refuse_what_nothing_uses(options.secret, environment, Reference(name, key))
    if options.forget:
        gone = _change(held, name, key, lambda lines: lines.alone()).values[1:]
        everybody_reads_it()
        return "\n".join([f"{options.secret}: its newest value alone holds now", *_aftermath(options.secret, gone)])
    value, since = how.make(), time.time() + how.settles if how.settles else 0.0
    if how.announced:
        _change(held, name, key, lambda lines: lines.announcing(value))
        everybody_reads_it()
        _change(held, name, key, lambda lines: lines.using(value))
    else:
        _change(held, name, key, lambda lines: _followed(lines, value, since))
    everybody_reads_it()
    if how.ends:
        _change(held, name, key, lambda lines: lines.alone())
        everybody_reads_it()
        return f"{options.secret}: rotated; {how.old}"
    later = f"used from {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(since))} on" if since else "used from now on"
    return f"{options.secret}: rotated, {later}; {how.old}"


def _refuse_what_nothing_uses(secret: str, environment: dict[str, str | Reference], place: Reference) -> None:
    how = KINDS[secret]
    if how.variable is None:
        return
    if how.variable not in environment:
        raise CommandError(f"{secret}: nothing uses it, for {how.unused}")
    used = environment[how.variable]
    if isinstance(used, Reference) and used != place:
        raise CommandError(
            f"{secret}: nothing uses it, for {how.variable} comes from the key {used.key} of Secret {used.secret}: "
            "write the new line there, as docs/how-to/encrypt-experience.md says"
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
