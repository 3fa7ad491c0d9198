"""The key that all policy servers of one ModelDeployment share, and the marks they recognise one another by.

Evidence for or against an arm is what its servers count, so what they count must come from an episode that one of them
opened, or from stable's copies. Both carry a mark: HMAC-SHA-256 (RFC 2104) under a key that the operator makes once for
each ModelDeployment and Kubernetes mounts into its pods, cut to 128 bits (section 5).
"""

import asyncio
import hmac
import logging
import re
import secrets
from pathlib import Path

from learnloop_common.key_lines import KeyLines

log = logging.getLogger(__name__)
LEAST_BYTES = 32
MARK_DIGITS = 32
_TEXT = re.compile(rb"[\t\n\r -~]*")
POLL_SECONDS = 5.0
"""The kubelet takes up to a minute to mount a Secret's new content, so that more haste would gain nothing."""


class Seal:
    """The keys in force, and those before them: pods get new ones at different times."""

    def __init__(self, text: bytes | None = None) -> None:
        """One key, or a line for each. Without any it draws one that no other process has."""
        self._lines = _lines(text or secrets.token_hex(LEAST_BYTES).encode())
        self._before: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path | None) -> "Seal":
        """The keys in the file `path`; raises ValueError with what is wrong with it. None: a key of one's own."""
        return cls(_key(path) if path is not None else None)

    def renew(self, text: bytes) -> None:
        """Mark with the newest of these keys whose time has come; marks of those before them still hold."""
        lines = _lines(text)
        if lines != self._lines:
            self._lines, self._before = lines, tuple(key for key in self._lines.values if key not in lines.values)

    def mark(self, purpose: bytes, message: bytes) -> str:
        """32 hexadecimal digits that only holders of the key can give `message`, for this purpose and no other."""
        return _mark(self._lines.current().encode("latin-1"), purpose, message)

    def holds(self, purpose: bytes, message: bytes, mark: str) -> bool:
        """Did a holder of the key give `message` this mark?"""
        given = mark.encode("utf-8", "replace")
        known = (key.encode("latin-1") for key in (*self._lines.values, *self._before))
        return any(hmac.compare_digest(_mark(key, purpose, message).encode(), given) for key in known)


def _mark(key: bytes, purpose: bytes, message: bytes) -> str:
    return hmac.digest(key, b"%b\0%b" % (purpose, message), "sha256").hex()[:MARK_DIGITS]


def _lines(content: bytes) -> KeyLines:
    """A key on each line; raw random bytes, in which line feeds end nothing, are one key as a whole.

    Raises:
        ValueError: lines of text that are none, or too many.
    """
    whole = content.decode("latin-1")
    raw = not _TEXT.fullmatch(content)
    try:
        lines = KeyLines.parse(whole)
    except ValueError:
        if not raw:
            raise
        return KeyLines(((whole, 0.0),))
    return KeyLines(((whole, 0.0),)) if raw and _shortest(lines) < LEAST_BYTES else lines


def _shortest(lines: KeyLines) -> int:
    return min(map(len, lines.values))


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        least = _shortest(_lines(key))
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None
    if least < LEAST_BYTES:
        raise ValueError(f"{path} holds {least} bytes: must hold {LEAST_BYTES} random ones or more")
    return key


async def follow_key(path: Path, seal: Seal) -> None:
    """Take over what the file says until cancelled; a key that is gone or broken stays in force as it was."""
    told = ""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        try:
            seal.renew(_key(path))
            told = ""
        except ValueError as error:
            if str(error) != told:
                told = str(error)
                log.error("the key of the episodes: %s; the last one stays in force", told)
