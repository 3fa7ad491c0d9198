"""Rights of clients on NATS: the server asks here when a client connects with a service-account token.

NATS calls it auth callout (https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_callout): the
server signs a request and publishes it on `$SYS.REQ.USER.AUTH`. It lets the client in with the permissions of the user
that comes back, if the key that its configuration names has signed it. A token speaks for its namespace and nothing
else, on NATS as over HTTP, in the tenants' account, which has no JetStream (see `relay`); what is answered to it, its
ServiceAccount alone can read. The data plane's own users have a password and are not asked about.
"""

import argparse
import base64
import binascii
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from learnloop_api import names
from learnloop_common.key_rotation import KeyLines
from learnloop_dataplane import config, errors
from learnloop_dataplane.access import tokens

log = logging.getLogger(__name__)
SUBJECT = "$SYS.REQ.USER.AUTH"
ACCOUNT = "TENANTS"
"""Of the server's configuration: it has no JetStream; what is published there reaches `relay` alone."""
ACCOUNT_PREFIX = b"\x00"  # an nkey that begins with A
MAX_REQUEST_BYTES = 2**16
ISSUER_TAG = "issuer:"
"""Begins the tag by which a server says whose word it takes."""
# A connection is looked at again when its token would be: the kubelet has given the pod a newer one by then.
MAX_SECONDS = 3600
PUBLISHED = (names.SUBJECT_TRAJECTORY, names.SUBJECT_TRAINING_REQUEST)
READ = (names.SUBJECT_REWARD, names.SUBJECT_TRAINING_STATUS, names.SUBJECT_MODEL_DEPLOYED)


class Issuer:
    """Signs what NATS believes.

    Args:
        seed: 32 random bytes, the private key of RFC 8032.
    """

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.name = _nkey(self._key.public_key().public_bytes_raw())

    def token(self, claims: dict[str, Any]) -> str:
        """A JWT as NATS reads it: `ed25519-nkey`, with this key's name as issuer."""
        claims = claims | {"iss": self.name, "iat": int(time.time())}
        signed = b".".join(_base64(orjson.dumps(part)) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
        return (signed + b"." + _base64(self._key.sign(signed))).decode()


class AuthCallout:
    """Answers the server's questions; replicas share them."""

    def __init__(self, authenticator: tokens.Authenticator, issuers: Sequence[Issuer]) -> None:
        """`issuers`: the newest first. While they follow one another each server is answered by the one it names."""
        self._authenticator = authenticator
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._newest = issuers[0]

    async def listen(self, client: Client) -> None:
        """From now on, also after a reconnection."""
        await client.subscribe(SUBJECT, queue="learnloop", cb=self._answer)

    async def _answer(self, message: Msg) -> None:
        try:
            user, server, token, tags = read_request(message.data)
        except ValueError as error:
            log.warning("NATS sends an invalid authorization request: %s", error)
            return
        answer: dict[str, Any] = {"type": "authorization_response", "version": 2}
        issuer = self._believed(tags)
        try:
            identity = await self._authenticator.identify(f"Bearer {token}", None)
            if identity.bearer is not None:
                raise errors.ApiError(
                    403, f"the token of a {identity.bearer} is not accepted here", field="authorization"
                )
        except errors.ApiError as error:
            log.info("NATS: a client is refused: %s", error)
            answer["error"] = str(error)[:300]
        else:
            answer["jwt"] = issuer.token(user_claims(user, identity))
        await message.respond(issuer.token({"sub": user, "aud": server, "nats": answer}).encode())

    def _believed(self, tags: Sequence[str]) -> Issuer:
        """The issuer that the server trusts; servers write their tags in lower case."""
        named = {tag.removeprefix(ISSUER_TAG).upper() for tag in tags if tag.startswith(ISSUER_TAG)}
        return next((issuer for name, issuer in self._issuers.items() if name in named), self._newest)


def read_request(data: bytes) -> tuple[str, str, str, tuple[str, ...]]:
    """The key the client is to be known by, the server's id, the token the client sent, and the server's tags.

    The signature is not checked: only the server itself may publish on `$SYS`, and an answer is of use to it alone.

    Raises:
        ValueError: the request is invalid.
    """
    if len(data) > MAX_REQUEST_BYTES:
        raise ValueError(f"{len(data)} bytes")
    try:
        payload = data.split(b".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))["nats"]
        options = claims["connect_opts"]
        token = options.get("auth_token") or options.get("pass") or ""
        server = claims["server_id"]
        return str(claims["user_nkey"]), str(server["id"]), str(token), tuple(map(str, server.get("tags") or ()))
    except (IndexError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(repr(error)[:200]) from None


def user_claims(user: str, identity: tokens.Identity) -> dict[str, Any]:
    """The user of one connection: its namespace's subjects, and an inbox no other ServiceAccount can read."""
    namespace = identity.namespace
    account = identity.subject.rpartition(":")[2]
    publish = [f"{subject}.{namespace}.>" for subject in PUBLISHED]
    read = [f"{subject}.{namespace}.>" for subject in READ]
    return {
        "sub": user,
        "aud": ACCOUNT,
        "name": identity.subject,
        "exp": int(time.time()) + MAX_SECONDS,
        "nats": {
            "type": "user",
            "version": 2,
            "pub": {"allow": publish},
            "sub": {"allow": [*read, f"{names.nats_inbox(namespace, account)}.>"]},
            "subs": 100,
            "data": -1,
            "payload": -1,
        },
    }


def _nkey(public_key: bytes) -> str:
    body = ACCOUNT_PREFIX + public_key
    checked = body + binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


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
    name = Issuer(config.seed_from(keys.values[0])).name
    return f"LEARNLOOP_ISSUER: {name}\nserver_tags: [{json.dumps(ISSUER_TAG + name)}]\n"


def _users(passwords: KeyLines) -> str:
    """JSON is read by NATS as its own configuration."""
    own, tenants = (config.logins_of(login, passwords) for login in (USER, TENANTS_USER))
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
