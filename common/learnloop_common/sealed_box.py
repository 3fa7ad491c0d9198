"""Seals bytes for the holder of one X25519 key: who seals them cannot read them again.

As age and libsodium's sealed boxes do it: a key pair for this one message, its shared secret through HKDF-SHA256, and
ChaCha20-Poly1305 (RFC 7748, 5869 and 8439). What comes out is `PREFIX`, the message's public key, and the ciphertext.
"""

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PREFIX = b"learnloop-sealed-1\n"
KEY_BYTES = 32
NONCE = bytes(12)  # each message has a key of its own


class NotOpened(ValueError):
    """These bytes are not sealed for this key, or are not what was sealed."""


def new_identity() -> tuple[str, str]:
    """A private key, and the recipient that others seal for: 64 hexadecimal digits each."""
    private = secrets.token_bytes(KEY_BYTES)
    return private.hex(), X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def seal(content: bytes, recipient: str) -> bytes:
    """The content for the holder of the recipient's private key alone.

    Raises:
        ValueError: the recipient is not 64 hexadecimal digits.
    """
    other = X25519PublicKey.from_public_bytes(_key(recipient, "the recipient"))
    own = X25519PrivateKey.generate()
    public = own.public_key().public_bytes_raw()
    key = _shared(own.exchange(other), public, other.public_bytes_raw())
    return PREFIX + public + ChaCha20Poly1305(key).encrypt(NONCE, content, PREFIX)


def unseal(sealed: bytes, private: str) -> bytes:
    """The content.

    Raises:
        NotOpened: sealed for another key, cut short or changed.
        ValueError: the private key is not 64 hexadecimal digits.
    """
    own = X25519PrivateKey.from_private_bytes(_key(private, "the private key"))
    rest = sealed.removeprefix(PREFIX)
    public = rest[:KEY_BYTES]
    if len(rest) == len(sealed) or len(public) < KEY_BYTES:
        raise NotOpened("this is no sealed file: it does not begin as one")
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(public))
        key = _shared(shared, public, own.public_key().public_bytes_raw())
        return ChaCha20Poly1305(key).decrypt(NONCE, rest[KEY_BYTES:], PREFIX)
    except (InvalidTag, ValueError):
        raise NotOpened("it is sealed for another key, or was changed: give the key of its recipient") from None


def _shared(secret: bytes, message: bytes, recipient: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, message + recipient, PREFIX).derive(secret)


def _key(text: str, what: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{what} is not 64 hexadecimal digits; `kubectl learnloop backup --keygen FILE` makes a pair")
    return key
