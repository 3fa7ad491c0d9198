"""Redaction as this process does it: the rules of the contract, with this installation's key.

Defence in depth behind the publisher's own hook, which applies the same rules.
"""

from typing import Any

from learnloop_common.key_lines import KeyLines
from learnloop_common.redaction.redactor import Redaction

_rules = Redaction()


def use_keys(keys: KeyLines | None) -> None:
    """From now on pseudonyms are made with the one of these that is in use; None: none are made.

    Raises:
        ValueError: a key is shorter than 16 bytes.
    """
    global _rules
    _rules = Redaction(keys)


def redact_text(value: str) -> str:
    return _rules.text(value)


def redact(value: Any) -> Any:
    return _rules.value(value)
