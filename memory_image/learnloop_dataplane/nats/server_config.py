"""Prepares a NATS server: whose word it takes, and who logs in with a password.

    python -m learnloop_dataplane.nats.server_config KEY_FILE OUTPUT_FILE [--passwords FILE]

The chart runs it before the server, whose configuration includes the output and names `$LEARNLOOP_ISSUER`: the public
half of the issuer's key. The server's tag says the same, so that the data plane signs for each server by the key that
this server believes, while servers are replaced one by one. For a server of your own, print it once (`OUTPUT_FILE`
/dev/stdout) and write both values where the server reads them.

FILE holds the data plane's password, a line for each that holds. Then the output also has the data plane's users, one
for each password: `$LEARNLOOP_USERS`, `$LEARNLOOP_TENANTS_USERS`, and their names for the auth callout.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.ed25519_keys import seed_from
from learnloop_dataplane.nats.auth_callout import ISSUER_TAG, Issuer
from learnloop_dataplane.successive_logins import logins_of

USER, TENANTS_USER = "learnloop", "learnloop-tenants"
"""The data plane's, in the account of the streams and in that of tenants."""


def main(arguments: list[str]) -> int:
    """Exit codes: 0 written, 2 a file cannot be read or holds no key, or the output cannot be written."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    parser.add_argument("key", type=Path, metavar="KEY_FILE", help="the issuer's key, the newest line first")
    parser.add_argument("output", type=Path, metavar="OUTPUT_FILE", help="what the server's configuration includes")
    parser.add_argument("--passwords", type=Path, metavar="FILE", help="of the data plane, a line for each")
    options = parser.parse_args(arguments)
    source = options.key
    try:
        text = _issuer(_lines(source))
        if options.passwords:
            source = options.passwords
            text += _users(_lines(source))
        source = options.output
        _write(source, text)
    except (OSError, ValueError) as error:
        print(f"{source}: {error}", file=sys.stderr)
        return 2
    return 0


def _lines(path: Path) -> KeyLines:
    return KeyLines.parse(path.read_text())


def _issuer(keys: KeyLines) -> str:
    name = Issuer(seed_from(keys.values[0])).name
    return f"LEARNLOOP_ISSUER: {name}\nserver_tags: [{json.dumps(ISSUER_TAG + name)}]\n"


def _users(passwords: KeyLines) -> str:
    """JSON is read by NATS as its own configuration."""
    own, tenants = (logins_of(login, passwords) for login in (USER, TENANTS_USER))
    named = {
        "LEARNLOOP_USERS": [{"user": user, "password": password} for user, password in own.items()],
        "LEARNLOOP_TENANTS_USERS": [{"user": user, "password": password} for user, password in tenants.items()],
        "LEARNLOOP_KNOWN_USERS": [*own, *tenants],
    }
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in named.items())


def _write(output: Path, text: str) -> None:
    """For this user's eyes alone where the file is new: it may hold passwords."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
