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
from learnloop_operator.cli.access.secrets import Secrets
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
        settles: seconds until it is used; who verifies has it at once.
        ends: the old value ends as soon as every part has the new one; else it stays, for what it signed stays.
        restarts: the data plane reads it when it starts.
    """

    make: Callable[[], str]
    settles: float = 0.0
    ends: bool = False
    restarts: bool = True


KINDS = {
    "database-password": Rotated(_password, ends=True),
    "audit-key": Rotated(_seed, settles=SETTLE_SECONDS),
    "pseudonym-key": Rotated(_password, settles=SETTLE_SECONDS),
    "encryption-keys": Rotated(lambda: f"k{int(time.time()):x} {_seed()}"),
    "episode-key": Rotated(_password, settles=MOUNTED_SECONDS, restarts=False),
    "webhook-key": Rotated(_password, restarts=False),
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
    held = cluster.secrets(namespace)

    def everybody_reads_it() -> None:
        data = f"{options.release}-data"
        if how.restarts and not held.restart("Deployment", data, options.timeout):
            raise CommandError(f"there is no Deployment {data} in {namespace}: name the installation with --release")

    if options.forget and options.secret == "encryption-keys":
        raise CommandError(
            "encryption-keys: an old key that still wraps something would be gone for ever; "
            "docs/how-to/encrypt-experience.md says how to see that none does, and which line to take out"
        )
    if options.forget:
        _change(held, name, key, lambda lines: lines.alone())
        everybody_reads_it()
        return f"{options.secret}: its newest value alone holds now"
    value, since = how.make(), time.time() + how.settles if how.settles else 0.0
    _change(held, name, key, lambda lines: lines.followed_by(value, since))
    everybody_reads_it()
    if how.ends:
        _change(held, name, key, lambda lines: lines.alone())
        everybody_reads_it()
        return f"{options.secret}: rotated; the old value holds no longer"
    later = f"used from {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(since))} on" if since else "used from now on"
    return f"{options.secret}: rotated, {later}; the old value still verifies, until you say --forget"


def _change(held: Secrets, name: str, key: str, change: Callable[[KeyLines], str]) -> None:
    text, version = held.read(name, key)
    try:
        lines = KeyLines.parse(text)
    except ValueError as error:
        raise CommandError(f"Secret {name}, key {key} {error}") from None
    held.write(name, key, change(lines), version)


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
