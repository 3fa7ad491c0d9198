"""Keys that seal what waits on disk: lines of 32 random bytes in Base64, the newest first, usually from a Secret."""

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from learnloop_common.encryption.envelope import KEY_BYTES, DataKey, Unreadable, is_sealed, key_id_of, seal, unseal

ENV_SPOOL_KEYS = "LEARNLOOP_SPOOL_KEY_FILE"


class KeyNotGiven(Unreadable):
    """Bytes that are whole, for all that is known, and sealed by another key."""


class SpoolKeys:
    """The first one seals; all open. Without any, what is written is left as it is.

    Raises:
        ValueError: a line is no key; says which.
        RuntimeError: the package that encrypts is not installed.
    """

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self._keys = [_key(number, line) for number, line in enumerate(lines, start=1)]
        if self._keys:
            try:
                import cryptography  # noqa: F401
            except ImportError as error:
                fix = "install learnloop[sdk-encryption], or leave the key file out"
                raise RuntimeError(f"a spool with a key needs the package cryptography; {fix}") from error

    @classmethod
    def read(cls, file: Path | None = None) -> "SpoolKeys":
        """From a file; None: from that of $LEARNLOOP_SPOOL_KEY_FILE, and without it there are no keys.

        Raises:
            OSError: the file cannot be read. ValueError and RuntimeError: as above.
        """
        named = file or os.environ.get(ENV_SPOOL_KEYS)
        if not named:
            return cls()
        try:
            keys = cls([line.strip() for line in Path(named).read_text().splitlines() if line.strip()])
        except ValueError as error:
            raise ValueError(f"{named}: {error}") from None
        if not keys._keys:
            raise ValueError(f"{named}: there is no key; make one with: head -c 32 /dev/urandom | base64")
        return keys

    def seal(self, body: bytes, name: str) -> bytes:
        """As it is written. `name` is what the bytes are: they open under no other name."""
        return seal(body, self._keys[0], name) if self._keys else body

    def open(self, stored: bytes, name: str) -> bytes:
        """As it was before.

        Raises:
            KeyNotGiven: none of these keys has sealed it. Unreadable: it was changed or cut off.
        """
        if not is_sealed(stored):
            return stored
        key_id = key_id_of(stored)
        key = next((key for key in self._keys if key.key_id == key_id), None)
        if key is None:
            raise KeyNotGiven("it was sealed by a key that is not given; add its line to the key file again")
        return unseal(stored, key, name)


def _key(number: int, line: str) -> DataKey:
    try:
        secret = base64.b64decode(line, validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        fix = "make one with: head -c 32 /dev/urandom | base64"
        raise ValueError(f"line {number} is not 32 random bytes in Base64; {fix}")
    return DataKey(UUID(bytes=hashlib.sha256(b"learnloop spool key\0" + secret).digest()[:16]), secret)
