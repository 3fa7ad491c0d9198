"""A server of text that answers every request with the same pieces."""

from collections.abc import AsyncGenerator
from typing import Any


class Chat:
    """A server of text."""

    def __init__(self, *pieces: dict[str, Any]) -> None:
        self.pieces = pieces

    async def ask(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        for piece in self.pieces:
            yield piece

    async def prepare(self) -> None:
        return None

    async def close(self) -> None:
        return None
