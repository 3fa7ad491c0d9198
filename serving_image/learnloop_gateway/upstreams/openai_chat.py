"""Any server that speaks as OpenAI does: a provider, LiteLLM, or Ollama as the fallback."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from learnloop_gateway.upstreams.http import ModelServer
from learnloop_gateway.upstreams.port import UpstreamDown


class OpenAiChat:
    """See ChatUpstream.

    Args:
        model: what the server calls its model: it replaces the name in each request.
    """

    def __init__(self, server: ModelServer, model: str) -> None:
        self._server, self.model = server, model

    async def prepare(self) -> None:
        """It lists its models."""
        await self._server.get("/v1/models")

    async def ask(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """See ChatUpstream."""
        async with aclosing(self._server.ask(path, body | {"model": self.model})) as pieces:
            async for piece in pieces:
                if not isinstance(piece, dict):
                    raise UpstreamDown(f"{self._server.url}: answers {str(piece)[:80]!r} in place of an object")
                yield piece

    async def close(self) -> None:
        """See ChatUpstream."""
        await self._server.close()
