"""A request to /chat/completions in the fields that one model takes: newer models refuse some of the older ones."""

from collections.abc import Mapping
from typing import Any


class ChatFields:
    """Remembers which fields a model refused. Use one for each model."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def of(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body as the model takes it; it is written with `max_tokens` and `temperature`."""
        taken = {name: value for name, value in body.items() if name not in self._refused}
        if "max_tokens" in body and "max_tokens" in self._refused:
            taken["max_completion_tokens"] = body["max_tokens"]
        return taken

    def refused(self, sent: Mapping[str, Any], sentence: str) -> bool:
        """Does the server's refusal of `sent` name a field that can be left out? Then ask again."""
        name = "max_tokens" if "max_completion_tokens" in sentence else "temperature"
        if name not in sent or name not in sentence:
            return False
        self._refused.add(name)
        return True
