"""Kopf's connection to the API server: a stream that was cut off is requested again.

Kopf decodes each line of a watch, and ends the operator over a line that is not JSON. A proxy that restarts in the
middle of an event leaves such a line. Kopf does the same over every error in a watch but 410. Here such a watch simply
ends before the damage: Kopf opens it again from the last version it has seen, and the server repeats what was lost.
"""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import aiohttp
import kopf
import orjson

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Before a damaged watch ends: Kopf opens the next one immediately, and the cause may last."""
GONE = 410
RELIST = orjson.dumps({"type": "ERROR", "object": {"kind": "Status", "code": GONE, "reason": "Expired"}})
"""The one error of a watch to which Kopf answers by listing everything again."""

CutCounter = Callable[[str], None]
"""Called with the resource plural for each damaged response."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WatchSession(kopf.AiohttpSession):
    """A session of ours, and the credentials it was made with: Kopf tries refused credentials only once."""

    credentials: kopf.ConnectionInfo

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchSession) and self.credentials == other.credentials

    def __hash__(self) -> int:
        return hash((self.server, self.priority))


def session_for(credentials: kopf.ConnectionInfo, cut: CutCounter) -> WatchSession:
    """Result of a login handler: the same connection that Kopf would make, with every answer checked."""
    connector = aiohttp.TCPConnector(limit=0, ssl=credentials.as_ssl_context())

    async def checked(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        return await check(request, await handler(request), cut)

    return WatchSession(
        server=credentials.server,
        default_namespace=credentials.default_namespace,
        credentials=credentials,
        aiohttp_session=aiohttp.ClientSession(
            connector=connector,
            headers=credentials.as_http_headers(),
            proxy=credentials.proxy_url,
            trust_env=credentials.trust_env,
            middlewares=(checked,),
        ),
    )


async def check(
    request: aiohttp.ClientRequest, response: aiohttp.ClientResponse, cut: CutCounter
) -> aiohttp.ClientResponse:
    """The answer, if it is whole; that of a watch, which is checked as it comes.

    Raises:
        ClientConnectionError: half an answer to anything but a watch. Kopf asks again, after a pause.
    """
    if request.method != "GET" or response.status != 200:
        return response
    plural = request.url.path.rsplit("/", 1)[-1]
    if request.url.query.get("watch") == "true":
        response.content = cast(aiohttp.StreamReader, WholeLines(response.content, plural, cut))
        return response
    try:
        orjson.loads(await response.read())
    except ValueError as error:
        cut(plural)
        text = f"GET {request.url.path}: {len(await response.read())} bytes that are not whole JSON: {error}"
        raise aiohttp.ClientConnectionError(text) from error
    return response


class WholeLines:
    """The body of a watch as Kopf reads it, in chunks, of which each ends with an event."""

    def __init__(self, behind: aiohttp.StreamReader, plural: str, cut: CutCounter) -> None:
        self._behind, self._plural, self._cut = behind, plural, cut

    def __getattr__(self, name: str) -> Any:
        """Delegate the rest to the stream: aiohttp closes it by other methods."""
        return getattr(self._behind, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Chunks of up to `size` bytes and the rest of the line before. Ends before the first broken line."""
        rest = b""
        async for chunk in self._behind.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            good = [self._unfailing(line) for line in lines if line]
            bad = next((index for index, line in enumerate(good) if not _is_event(line)), None)
            if good[:bad]:
                yield b"\n".join(good[:bad]) + b"\n"
            if bad is not None:
                await self._damaged(good[bad])
                return
        if rest:
            await self._damaged(rest)

    async def _damaged(self, line: bytes) -> None:
        self._cut(self._plural)
        log.warning(
            "the watch of %s broke off inside an event (%d bytes that are none): it is opened again from the last one",
            self._plural,
            len(line),
        )
        await asyncio.sleep(PAUSE_SECONDS)

    def _unfailing(self, line: bytes) -> bytes:
        """The line; an error that Kopf would end over as the one it lists again for."""
        if not line.startswith(b'{"type":"ERROR"'):
            return line
        try:
            status = orjson.loads(line).get("object") or {}
        except ValueError:
            return b""  # no event
        if status.get("code") == GONE:
            return line
        self._cut(self._plural)
        text = f"{status.get('code')} {status.get('message')}"
        log.warning("the watch of %s failed with %s: everything is listed again", self._plural, text)
        return RELIST


def _is_event(line: bytes) -> bool:
    """True if a complete line is one event. Only a proxy puts an end to a line that it cut, one that
    answers in its own words: a look at both ends is enough, and costs nothing."""
    return line.startswith(b"{") and line.rstrip().endswith(b"}")
