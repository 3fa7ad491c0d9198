"""Keeps what people and tools say from being read as a chat template's control tokens.

A template writes control tokens and everybody's words into one text. So the words are marked before they are rendered:
a mark behind the first character of each control token. Encoding the pieces between marks one by one gives the same
characters, and never the control token. A text without control tokens is encoded as before.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

MARK = "\ufdd0"
"""A code point that Unicode reserves for such uses: no text that is exchanged contains it."""
_AUTHORED = ("assistant", "system", "developer")
"""Roles whose author knows the model: they may write tokens that are not special, such as <think>."""


class ControlTokens:
    """The control tokens of one tokeniser.

    Args:
        added: the tokens that it matches before it splits a text, each with its `content` and whether it is `special`.
    """

    def __init__(self, added: Iterable[Any]) -> None:
        tokens = list(added)
        self._special = _beginning({one.content for one in tokens if one.special})
        self._added = _beginning({one.content for one in tokens})

    def marked(self, messages: Any) -> Any:
        """The messages, or tools, of a template with every text in them marked."""
        if isinstance(messages, Mapping):
            pattern = self._special if messages.get("role") in _AUTHORED else self._added
            return {name: value if name == "role" else _mark(value, pattern) for name, value in messages.items()}
        return [self.marked(one) for one in messages]


def pieces(rendered: str) -> list[str]:
    """The parts of a rendered text that are to be encoded one by one."""
    return [piece for piece in rendered.split(MARK) if piece]


def _beginning(tokens: Collection[str]) -> re.Pattern[str] | None:
    """Finds the first character of each token, overlapping ones included; a token of one character is no command."""
    texts = sorted(re.escape(token) for token in tokens if len(token) > 1)
    return re.compile(rf"(?=(?:{'|'.join(texts)}))(.)", re.DOTALL) if texts else None


def _mark(value: Any, pattern: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        plain = value.replace(MARK, "")
        return pattern.sub(rf"\1{MARK}", plain) if pattern is not None else plain
    if isinstance(value, Mapping):
        return {_mark(name, pattern): _mark(item, pattern) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark(item, pattern) for item in value]
    return value
