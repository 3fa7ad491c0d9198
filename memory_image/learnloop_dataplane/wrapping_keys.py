"""The keys of the Secret: they wrap data keys and nothing else, so that a new one seals nothing anew."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from learnloop_dataplane.ed25519_keys import seed_from
from learnloop_dataplane.errors import KeyMissing

_NONCE_BYTES = 12
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class WrappingKeys:
    """By name; `newest` wraps, all unwrap."""

    newest: str
    secrets: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"WrappingKeys({', '.join(self.secrets)})"

    @classmethod
    def parse(cls, text: str) -> "WrappingKeys":
        """Reads `NAME KEY` lines, the newest first; a KEY is 32 random bytes in Base64.

        Raises:
            ValueError: says which line, never the key.
        """
        secrets: dict[str, bytes] = {}
        for number, line in enumerate((line for line in text.splitlines() if line.strip()), start=1):
            name, _, key = line.strip().partition(" ")
            if not _NAME.fullmatch(name):
                raise ValueError(f"line {number}: give NAME KEY; a name has 1 to 40 of a-z, 0-9 and -")
            if name in secrets:
                raise ValueError(f"line {number}: the name {name} stands twice; give the new key another one")
            try:
                secrets[name] = seed_from(key.strip())
            except ValueError as error:
                raise ValueError(f"line {number}: the key {name} {error}") from None
        if not secrets:
            raise ValueError("there is no key; give a line NAME KEY")
        return cls(next(iter(secrets)), secrets)

    def wrap(self, secret: bytes, context: str) -> bytes:
        """By the newest key: AES-256-GCM with a random nonce before it."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as in `learnloop_common.encryption`

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.secrets[self.newest]).encrypt(nonce, secret, context.encode())

    def unwrap(self, wrapped: bytes, name: str, context: str) -> bytes:
        """What was wrapped by the key `name`.

        Raises:
            KeyMissing: there is no such key, or another one under this name.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if name not in self.secrets:
            raise KeyMissing(f"LEARNLOOP_ENCRYPTION_KEYS has no key {name}, which wraps data keys; put its line back")
        try:
            return AESGCM(self.secrets[name]).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], context.encode())
        except InvalidTag:
            problem = f"the key {name} of LEARNLOOP_ENCRYPTION_KEYS is not the one that wrapped; put the old one back"
            raise KeyMissing(problem) from None
