"""Sealed bytes: AES-256-GCM over chunks, so that a file of any size is read and written in little memory.

Layout: a header of 36 bytes (magic, the data key's id, a salt), then chunks of 1 MiB and the last, shorter one, each
with its 16 bytes of tag. The key of one envelope is derived from the data key and the salt by HKDF-SHA256 (RFC 5869),
so its chunks' nonces may count from 0. A nonce says whether its chunk is the last: what was cut off, swapped, repeated
or appended does not open. That is the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár: Online Authenticated-
Encryption and its Nonce-Reuse Misuse-Resistance, 2015).

The `context` says what the bytes are and where they lie. It is not stored: an envelope that lies elsewhere does not
open there.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"LLE1"
SALT_BYTES, TAG_BYTES, KEY_BYTES = 16, 16, 32
HEADER_BYTES = len(MAGIC) + 16 + SALT_BYTES
CHUNK_BYTES = 2**20
_PURPOSE = b"learnloop envelope 1\0"


class DataKey(NamedTuple):
    """Key that seals and opens; `secret` has 32 bytes."""

    key_id: UUID
    secret: bytes

    def __repr__(self) -> str:
        return f"DataKey({self.key_id})"


class Unreadable(ValueError):
    """Not a complete envelope of this key and context."""


def is_sealed(head: bytes) -> bool:
    """Do bytes that begin so look like an envelope?"""
    return head.startswith(MAGIC)


def key_id_of(header: bytes) -> UUID:
    """Id of the key that opens it.

    Raises:
        Unreadable: not a header.
    """
    if len(header) < HEADER_BYTES or not is_sealed(header):
        raise Unreadable("no envelope begins so")
    return UUID(bytes=header[len(MAGIC) : len(MAGIC) + 16])


def sealed(chunks: Iterable[bytes], key: DataKey, context: str) -> Iterator[bytes]:
    """The envelope of `chunks`, in pieces of at most 1 MiB and a tag; the header comes first."""
    header = MAGIC + key.key_id.bytes + os.urandom(SALT_BYTES)
    cipher, number = _cipher(header, key, context), 0
    yield header
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        # One that is full may be the last: it waits until there is more.
        while len(waiting) > CHUNK_BYTES:
            yield cipher.encrypt(_nonce(number, last=False), bytes(waiting[:CHUNK_BYTES]), header)
            del waiting[:CHUNK_BYTES]
            number += 1
    yield cipher.encrypt(_nonce(number, last=True), bytes(waiting), header)


class Opener:
    """Reads one envelope.

    Args:
        header: its first HEADER_BYTES.
    """

    def __init__(self, header: bytes, key: DataKey, context: str) -> None:
        self._header, self._cipher, self._number = header, _cipher(header, key, context), 0
        self._waiting = bytearray()

    def update(self, data: bytes) -> bytes:
        """Return the plain bytes that `data` completes; may be empty.

        Raises:
            Unreadable: it was changed, or sealed for another context or by another key.
        """
        self._waiting += data
        pieces = []
        while len(self._waiting) > CHUNK_BYTES + TAG_BYTES:
            pieces.append(self._open(bytes(self._waiting[: CHUNK_BYTES + TAG_BYTES]), last=False))
            del self._waiting[: CHUNK_BYTES + TAG_BYTES]
        return b"".join(pieces)

    def finish(self) -> bytes:
        """The rest.

        Raises:
            Unreadable: it ends too early, or something follows the end.
        """
        return self._open(bytes(self._waiting), last=True)

    def _open(self, piece: bytes, *, last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            result = self._cipher.decrypt(_nonce(self._number, last=last), piece, self._header)
        except InvalidTag:
            raise Unreadable(f"chunk {self._number} was changed, cut off, or sealed for something else") from None
        self._number += 1
        return result


def seal(data: bytes, key: DataKey, context: str) -> bytes:
    """An envelope in one piece."""
    return b"".join(sealed((data,), key, context))


def unseal(envelope: bytes, key: DataKey, context: str) -> bytes:
    """Open what `seal` returned.

    Raises:
        Unreadable: it was changed, or sealed for another context or by another key.
    """
    key_id_of(envelope)
    opener = Opener(envelope[:HEADER_BYTES], key, context)
    return opener.update(envelope[HEADER_BYTES:]) + opener.finish()


# Imported where something is sealed or opened: a process that does neither need not load it (6 MiB), nor have it.
def _cipher(header: bytes, key: DataKey, context: str) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if key_id_of(header) != key.key_id:
        raise Unreadable(f"it was sealed by the data key {key_id_of(header)}, not by {key.key_id}")
    salt = header[-SALT_BYTES:]
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, _PURPOSE + context.encode()).derive(key.secret))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
