"""A server of text that answers every request with the same pieces."""

from collections.abc import AsyncGenerator


class Chat:
    """A server of text."""

    def __init__(self, *pieces: dict) -> None:
        self.pieces = pieces

    async def ask(self, path: str, body: dict) -> AsyncGenerator[dict, None]:
        for piece in self.pieces:
            yield piece

    async def prepare(self) -> None:
        return None

    async def close(self) -> None:
        return None
