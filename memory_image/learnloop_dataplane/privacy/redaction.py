"""Redaction as this process does it: the rules of the contract, with this installation's key.

Defence in depth behind the publisher's own hook, which applies the same rules.
"""

from typing import Any

from learnloop_api.redaction import Redaction

_rules = Redaction()


def use_key(key: bytes | None) -> None:
    """From now on pseudonyms are made with this key; None: none are made.

    Raises:
        ValueError: the key is shorter than 16 bytes.
    """
    global _rules
    _rules = Redaction(key)


def redact_text(value: str) -> str:
    """See `Redaction.text`."""
    return _rules.text(value)


def redact(value: Any) -> Any:
    """See `Redaction.value`."""
    return _rules.value(value)
