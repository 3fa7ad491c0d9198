"""Digests of what can be guessed: ids that people chose, requests that name a person.

Made with the installation's pseudonym key, which is not in the database: whoever reads its rows, or a dump of them,
cannot try names. A plain SHA-256 would tell them. A process without that key makes plain ones; the chart gives one.
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
    return plain(content) if _keys is None else _keyed(_keys.current(), purpose, content)


def known(purpose: str, content: bytes) -> tuple[str, ...]:
    """What `digest` says, or said before the key was another one."""
    if _keys is None:
        return (plain(content),)
    return tuple(_keyed(key, purpose, content) for key in _keys.values)


def plain(content: bytes) -> str:
    """SHA-256 in hexadecimal digits: what there was before there was a key."""
    return sha256(content).hexdigest()


def _keyed(key: str, purpose: str, content: bytes) -> str:
    secret = hmac.digest(key.encode(), _PURPOSE, "sha256")
    return hmac.digest(secret, purpose.encode() + b"\0" + content, "sha256").hex()
