"""POST requests by aiohttp: bounded, timed out, never redirected."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

from learnloop_common.tls.contexts import client_context
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.transport.event_loop import EventLoopOwner

MAX_BODY = 16_777_216
_inherited: list[aiohttp.ClientSession] = []
"""Sessions of a parent process: closing one here would take its connections out of the parent's epoll instance."""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; names of headers in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body for a message."""
        return self.body.decode("utf-8", "replace")


class Posts(Protocol):
    """A client that can POST JSON."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Response:
        """Raises OSError, TimeoutError, and LearnloopError for an invalid URL."""
        ...


class Http:
    """One aiohttp session, opened by the first request of the running event loop."""

    def __init__(self) -> None:
        self._owner = EventLoopOwner()
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Response:
        """See Posts. A request that meets a connection closed while idle is sent once more: all of them may be."""
        sent = {"content-type": "application/json", **headers}
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._post(url, body, sent)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                    if isinstance(error, aiohttp.ClientConnectorError):
                        raise
                    return await self._post(url, body, sent)
        except aiohttp.InvalidURL as error:
            raise LearnloopError(f"endpoint: {url!r} is not valid: write http://<host>[:<port>]") from error
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None and not self._owner.is_new():
            await self._session.close()
        self._session = None

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        async with self._opened().post(url, data=body, headers=headers, allow_redirects=False) as answer:
            content = bytearray()
            async for part in answer.content.iter_any():
                content += part
                if len(content) > MAX_BODY:
                    raise aiohttp.ClientPayloadError(f"{url} answers more than {MAX_BODY} bytes")
            names = {key.lower(): value for key, value in answer.headers.items()}
            return Response(answer.status, bytes(content), names)

    def _opened(self) -> aiohttp.ClientSession:
        new = self._owner.is_new()
        if new and self._session is not None:
            _inherited.append(self._session)
        if new or self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=client_context()),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
            )
        return self._session
