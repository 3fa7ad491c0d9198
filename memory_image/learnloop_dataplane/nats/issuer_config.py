"""Tells a NATS server whose word it takes: the public half of the issuer's key, as a variable of its configuration.

    python -m learnloop_dataplane.nats.issuer_config KEY_FILE OUTPUT_FILE

The chart runs it before the server, whose configuration includes the output and names `$LEARNLOOP_ISSUER`. For a server
of your own, print it once (`OUTPUT_FILE` /dev/stdout) and write the value where the server reads it.
"""

import sys
from pathlib import Path

from learnloop_dataplane.ed25519_keys import seed_from
from learnloop_dataplane.nats.auth_callout import Issuer


def main(arguments: list[str]) -> int:
    """Exit codes: 0 written, 2 the key file cannot be read or holds no key, or the output cannot be written."""
    if len(arguments) != 2:
        print("usage: python -m learnloop_dataplane.nats.issuer_config KEY_FILE OUTPUT_FILE", file=sys.stderr)
        return 2
    source, output = map(Path, arguments)
    try:
        issuer = Issuer(seed_from(source.read_text().strip()))
        output.write_text(f"LEARNLOOP_ISSUER: {issuer.name}\n")
    except (OSError, ValueError) as error:
        print(f"{source}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
