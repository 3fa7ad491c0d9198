"""Digests of what can be guessed: ids that people chose, requests that name a person.

Made with the installation's pseudonym key, which is not in the database: a reader of its rows, or of a dump of them,
cannot try names. A process without that key makes plain SHA-256; the chart gives one.
"""

import hmac
from hashlib import sha256

from learnloop_common.key_lines import KeyLines

_PURPOSE = b"learnloop digests"
_keys: KeyLines | None = None


def use_keys(keys: KeyLines | None) -> None:
    """From now on digests are made with keys that follow from these; None: they are plain."""
    global _keys
    _keys = keys


def digest(purpose: str, content: bytes) -> str:
    """HMAC-SHA256 in hexadecimal digits; the same content has another one for each purpose."""
    return sha256(content).hexdigest() if _keys is None else _keyed(_keys.current(), purpose, content)


def valid(purpose: str, content: bytes) -> tuple[str, ...]:
    """The digests by all keys: `digest` gives one, or gave it before the key was rotated."""
    if _keys is None:
        return (digest(purpose, content),)
    return tuple(_keyed(key, purpose, content) for key in _keys.values)


def _keyed(key: str, purpose: str, content: bytes) -> str:
    secret = hmac.digest(key.encode(), _PURPOSE, "sha256")
    return hmac.digest(secret, purpose.encode() + b"\0" + content, "sha256").hex()
