"""Sessions to servers of other parts, and reading their answers without trusting their length."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from learnloop_common.tls import client_context


class HttpSession:
    """Keep-alive connections, opened by the first request: they belong to the event loop that runs then."""

    def __init__(self, seconds: float, connections: Mapping[str, Any] | None = None, **options: Any) -> None:
        """Every request takes at most `seconds`; `connections` and `options` are aiohttp's."""
        self._seconds, self._connections, self._options = seconds, connections or {}, options
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=client_context(), **self._connections),
                timeout=aiohttp.ClientTimeout(total=self._seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                **self._options,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class TooLarge(Exception):
    """The answer is longer than what anyone sane would send."""


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLarge: more than `limit` bytes.
    """
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limit:
            raise TooLarge(f"the answer exceeds {limit} bytes")
        parts.append(part)
    return b"".join(parts)
