"""Redaction whose key is rotated: each call is by the key that is in use at that moment."""

from typing import Any

from learnloop_common.key_lines import KeyLines
from learnloop_common.redaction.redactor import Redaction


class SuccessiveRedaction(Redaction):
    """The rules, and the keys of the pseudonyms.

    Args:
        keys: the newest first, each of at least 16 bytes.

    Raises:
        ValueError: a key is shorter.
    """

    def __init__(self, keys: KeyLines) -> None:
        super().__init__()
        self._lines = keys
        self._made = {key: Redaction(key.encode()) for key in keys.values}

    def text(self, value: str) -> str:
        """See `Redaction.text`."""
        return self._now().text(value)

    def value(self, value: Any, depth: int = 0) -> Any:
        """See `Redaction.value`; one key makes all pseudonyms of a value."""
        return self._now().value(value, depth)

    def mark(self, kind: str, found: str) -> str:
        """See `Redaction.mark`."""
        return self._now().mark(kind, found)

    def _now(self) -> Redaction:
        return self._made[self._lines.current()]
