"""Requests to language models: the fields that a model takes, and words without control tokens."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any


class ChatFields:
    """Remembers which fields a model refuses. Use one for each model."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def of(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body as the model takes it; it is written with `max_tokens` and `temperature`."""
        taken = {name: value for name, value in body.items() if name not in self._refused}
        if "max_tokens" in body and "max_tokens" in self._refused:
            taken["max_completion_tokens"] = body["max_tokens"]
        return taken

    def refused(self, sent: Mapping[str, Any], sentence: str) -> bool:
        """Should the request be sent again without a field, after a refusal of `sent` that names it?"""
        bounds = "max_tokens" in sentence and not _UNSUPPORTED.search(sentence)
        if bounds and "max_completion_tokens" not in sentence:
            return False  # its value is out of bounds
        name = "max_tokens" if "max_" in sentence else "temperature"
        if name not in sent or not (name in sentence or "max_completion_tokens" in sentence):
            return False
        self._refused.add(name)
        return True


_UNSUPPORTED = re.compile("support|unknown|recogni[sz]ed|unexpected|permitted|allowed|extra|not accept", re.IGNORECASE)
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
    """Finds the first character of each token, overlapping ones included; tokens of one character are left out."""
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
