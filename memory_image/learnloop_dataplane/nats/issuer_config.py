"""Prepares a NATS server: whose word it takes, and where its streams lie.

    python -m learnloop_dataplane.nats.issuer_config KEY_FILE OUTPUT_FILE [STORE_DIRECTORY]

The chart runs it before the server, whose configuration includes the output and names `$LEARNLOOP_ISSUER`: the public
half of the issuer's key. For a server of your own, print it once (`OUTPUT_FILE` /dev/stdout) and write the value where
the server reads it.

STORE_DIRECTORY is JetStream's, of a server that does not run. Streams that were made before the server had accounts
lie in the global account's folder; they are moved to the data plane's own account, once.
"""

import sys
from pathlib import Path

from learnloop_dataplane.ed25519_keys import seed_from
from learnloop_dataplane.nats.auth_callout import Issuer

GLOBAL = "$G"
OWN = "LEARNLOOP"
"""The account of the streams, as the chart's nats.conf calls it."""


def main(arguments: list[str]) -> int:
    """Exit codes: 0 written, 2 the key file cannot be read or holds no key, or the output cannot be written."""
    if len(arguments) not in (2, 3):
        print(f"usage: python -m {__spec__.name} KEY_FILE OUTPUT_FILE [STORE_DIRECTORY]", file=sys.stderr)
        return 2
    source, output = map(Path, arguments[:2])
    try:
        issuer = Issuer(seed_from(source.read_text().strip()))
        output.write_text(f"LEARNLOOP_ISSUER: {issuer.name}\n")
    except (OSError, ValueError) as error:
        print(f"{source}: {error}", file=sys.stderr)
        return 2
    if arguments[2:]:
        return _move(Path(arguments[2]) / "jetstream")
    return 0


def _move(store: Path) -> int:
    """One rename: a start that is cut short finds either the old place or the new one."""
    old, new = store / GLOBAL, store / OWN
    if not old.is_dir() or new.exists():
        return 0
    try:
        old.rename(new)
    except OSError as error:
        print(f"{old}: its streams cannot be moved to {new}: {error}", file=sys.stderr)
        return 2
    print(f"the streams of {old} are those of {new} now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
