"""Hands a request to the gateway of the arm that its conversation belongs to, and the answer back as it comes."""

from collections.abc import Mapping

import aiohttp

from learnloop_api import names
from learnloop_common.tls.contexts import client_context
from learnloop_gateway.client_stream import Outgoing
from learnloop_gateway.upstreams.idle_connections import noting_reuse, posted

BACK = (
    names.HEADER_EPISODE,
    names.HEADER_TRAJECTORY,
    names.HEADER_REVISION,
    "retry-after",
)
"""Headers of the other gateway's that the client gets, beside its content-type."""


class Unreachable(Exception):
    """No gateway of that arm answered."""


class Forwarding:
    """Connections to the gateways of the other arms."""

    def __init__(self, first_seconds: float, seconds: float) -> None:
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=2.0, sock_read=first_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, url: str, path: str, headers: Mapping[str, str], body: bytes, out: Outgoing) -> None:
        """Raises Unreachable where no answer began; an answer that breaks off is cut off for the client too."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=client_context() or True)
            self._session = aiohttp.ClientSession(
                connector=connector, trust_env=False, auto_decompress=False, trace_configs=[noting_reuse()]
            )
        try:
            async with posted(
                self._session, f"{url}{path}", data=body, headers=headers, allow_redirects=False, timeout=self._timeout
            ) as answer:
                out.headers |= {name: answer.headers[name] for name in BACK if name in answer.headers}
                kind = answer.headers.get("content-type", "application/json")
                if answer.content_type != "text/event-stream":
                    await out.whole(answer.status, await answer.read(), kind)
                    return
                await out.begin(kind, answer.status)
                async for part in answer.content.iter_any():
                    await out.piece(part)
                await out.end()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not out.started:
                raise Unreachable(f"{url}: {str(error) or type(error).__name__}") from error
            raise

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
