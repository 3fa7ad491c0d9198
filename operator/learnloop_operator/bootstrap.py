"""Fills the chart's empty Secret with passwords and keys; runs to its end before the operator starts.

    python -m learnloop_operator.bootstrap

The chart renders the Secret without data, so no password is ever in a manifest. What is there is never changed:
PostgreSQL keeps the password it was born with, and what a lost key signed or hashed is not recognised again.
"""

import asyncio
import base64
import os
import secrets
import string
import sys
from collections.abc import Callable, Mapping
from typing import Any

from learnloop_operator.kube import errors, http_transport, kinds

ATTEMPTS = 5
# Letters alone: nothing to escape in a URL, and NATS would read digits as a number (log2(52) * 40 = 228 bits).
LENGTH = 40


def completion(secret: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON merge patch that adds the missing passwords to `secret`, or None when all are there.

    It carries the resourceVersion: of two operators that start together one is refused and looks again.
    """
    present = secret.get("data") or {}
    missing = [key for key in KEYS if not present.get(key)]
    if not missing:
        return None
    return {
        "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {key: base64.b64encode(MAKERS[key]().encode()).decode() for key in missing},
    }


def _password() -> str:
    return "".join(secrets.choice(string.ascii_letters) for _ in range(LENGTH))


def seed() -> str:
    """An Ed25519 private key (RFC 8032) in Base64: any 32 random bytes are one."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def wrapping_key() -> str:
    """The first key that wraps data keys, with its name: a line as LEARNLOOP_ENCRYPTION_KEYS has them."""
    return f"k1 {seed()}"


MAKERS: Mapping[str, Callable[[], str]] = {
    "database-password": _password,
    "encryption-keys": wrapping_key,
    "nats-issuer-key": seed,
    "nats-password": _password,
    "postgres-password": _password,
    "pseudonym-key": _password,
}
KEYS = tuple(MAKERS)


async def fill(http: http_transport.KubeHttp, namespace: str, name: str) -> bool:
    """Completes the Secret; True when it had to be written.

    Raises:
        KubeError: the API server refuses; NotFound when the chart's Secret is missing.
    """
    path = kinds.SECRET.path(namespace, name)
    for _ in range(ATTEMPTS):
        patch = completion(await http.request("GET", path))
        if patch is None:
            return False
        try:
            await http.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        except errors.Conflict:
            continue
        return True
    raise errors.Conflict(
        f"Secret {namespace}/{name} was changed {ATTEMPTS} times while its passwords were being added"
    )


async def _main() -> int:
    namespace = os.environ["LEARNLOOP_SYSTEM_NAMESPACE"]
    name = os.environ["LEARNLOOP_CREDENTIALS_SECRET"]
    http = http_transport.KubeHttp(await http_transport.find_configuration())
    try:
        written = await fill(http, namespace, name)
    except errors.KubeError as error:
        print(f"Secret {namespace}/{name}: {error}", file=sys.stderr)
        return 1
    finally:
        await http.close()
    print(f"Secret {namespace}/{name}: {'passwords generated' if written else 'complete'}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
