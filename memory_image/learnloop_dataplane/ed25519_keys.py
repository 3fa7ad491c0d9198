"""Reads Ed25519 private keys (RFC 8032) from settings."""

import base64
import binascii

SEED_BYTES = 32


def seed_from(text: str) -> bytes:
    """The 32 bytes of a key as it stands in a Secret: Base64.

    Raises:
        ValueError: it is something else.
    """
    try:
        seed = base64.b64decode(text, validate=True)
    except binascii.Error:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise ValueError("is not 32 random bytes in Base64; make one with: head -c 32 /dev/urandom | base64")
    return seed
