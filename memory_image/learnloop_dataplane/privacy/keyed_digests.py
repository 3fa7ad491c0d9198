"""Digests of what can be guessed: ids that people chose, requests that name a person.

Made with the installation's pseudonym key, which is not in the database: whoever reads its rows, or a dump of them,
cannot try names. A plain SHA-256 would tell them. A process without that key makes plain ones; the chart gives one.
"""

import hmac
from hashlib import sha256

_PURPOSE = b"learnloop digests"
_secret: bytes | None = None


def use_key(key: bytes | None) -> None:
    """From now on digests are made with a key that follows from this one; None: they are plain."""
    global _secret
    _secret = hmac.digest(key, _PURPOSE, "sha256") if key else None


def digest(purpose: str, content: bytes) -> str:
    """HMAC-SHA256 in hexadecimal digits; the same content has another one for each purpose."""
    if _secret is None:
        return plain(content)
    return hmac.digest(_secret, purpose.encode() + b"\0" + content, "sha256").hex()


def plain(content: bytes) -> str:
    """SHA-256 in hexadecimal digits: what there was before there was a key."""
    return sha256(content).hexdigest()
