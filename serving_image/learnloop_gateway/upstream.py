"""The protocols of model servers, and the HTTP connection to one."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson

from learnloop_common.circuit_breaker import Breaker
from learnloop_common.tls.contexts import client_context


class UpstreamDown(Exception):
    """The server does not answer, fails, or is left alone for a while."""

    def __init__(self, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message[:500])
        self.retry_after = retry_after


class UpstreamBusy(UpstreamDown):
    """The server answers 429."""


class UpstreamFailed(UpstreamDown):
    """The server answers 500: it failed on this request."""


class UpstreamRefused(Exception):
    """The server refuses this request; the message says why."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Some tokens.

    Attributes:
        ids: the tokens.
        log_probs: natural log of the probability each was drawn with, after the temperature; at temperature 0 before
            it. None: unknown.
        finish: why the answer ended; None: it has not.
        total: tokens drawn in all, if the server reports it with the last ones.
    """

    ids: Sequence[int]
    log_probs: Sequence[float] | None
    finish: Literal["stop", "length"] | None = None
    total: int | None = None


def token_ids(value: Any) -> list[int]:
    """`value` as token ids; raises TypeError for anything else."""
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 2**31 for one in value):
        raise TypeError(f"{str(value)[:80]!r}: not a list of token ids")
    return value


FIRST_SECONDS, SECONDS = 120.0, 600.0
"""Until the first byte of an answer, and for a whole answer."""


MOST_BYTES = 64 * 2**20
LONGEST_LINE = 2**20
SAID = 300
FAILURES = 3
"""In a row, before a server is left alone."""


def fresh_connections() -> aiohttp.TCPConnector:
    """A connection for each request: an idle one may be closed by its server as the next request arrives."""
    return aiohttp.TCPConnector(limit=0, ssl=client_context(), force_close=True)


class ModelServer:
    """One server.

    Args:
        url: base address.
        key: bearer token, where the server wants one.
        first_seconds: until the first byte of an answer, and between two pieces of it.
        seconds: for a whole answer.
    """

    def __init__(
        self, url: str, key: str = "", *, first_seconds: float = FIRST_SECONDS, seconds: float = SECONDS
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=3.0, sock_read=first_seconds)
        self._breaker = Breaker(after=FAILURES)
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=fresh_connections(), headers=self._headers, read_bufsize=LONGEST_LINE
            )
        return self._session

    async def get(self, path: str) -> Any:
        """JSON of a GET; raises UpstreamDown. It is not held back by earlier failures."""
        try:
            async with self._client().get(
                f"{self.url}{path}", allow_redirects=False, timeout=aiohttp.ClientTimeout(total=5.0)
            ) as answer:
                body = await _whole(answer)
                if answer.status != 200:
                    raise UpstreamDown(f"{self.url}{path}: HTTP {answer.status}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise UpstreamDown(f"{self.url}{path}: {_said(error)}") from error
        try:
            return orjson.loads(body or b"{}")
        except ValueError:
            return {}

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """JSON of an answer; raises as `ask`."""
        pieces = [piece async for piece in self.ask(path, body)]
        return pieces[-1] if pieces else None

    async def ask(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """The answer's pieces where it is an event stream, else the whole as one.

        Raises:
            UpstreamDown: no answer, an error of the server's, or it is left alone. Also in the middle of an answer.
            UpstreamBusy: it takes no more for now.
            UpstreamRefused: it does not take this request.
        """
        if not self._breaker.allows():
            raise UpstreamDown(f"{self.url} failed a moment ago and is left alone", retry_after=1)
        try:
            async with aclosing(self._ask(path, body)) as pieces:
                async for piece in pieces:
                    yield piece
        except (UpstreamBusy, UpstreamRefused, UpstreamFailed):
            self._breaker.worked()  # it answers: other requests may succeed
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._breaker.gave_up()
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, UpstreamDown) as error:
            self._breaker.failed()
            raise error if isinstance(error, UpstreamDown) else UpstreamDown(f"{self.url}: {_said(error)}") from error
        except BaseException:
            self._breaker.gave_up()
            raise
        self._breaker.worked()

    async def _ask(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        address = f"{self.url}{path}"
        async with self._client().post(
            address, data=orjson.dumps(body), allow_redirects=False, timeout=self._timeout
        ) as answer:
            if answer.status != 200:
                raise _refusal(address, answer, await _whole(answer))
            if answer.content_type != "text/event-stream":
                whole = await _whole(answer)
                yield orjson.loads(whole) if "json" in answer.content_type else whole.decode("utf-8", "replace")
                return
            size = 0
            async for line in answer.content:
                size += len(line)
                if size > MOST_BYTES:
                    raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
                if line.startswith(b"data:"):
                    text = line[5:].strip()
                    if text == b"[DONE]":
                        return
                    piece = orjson.loads(text)
                    if isinstance(piece, dict) and "error" in piece:
                        raise UpstreamDown(f"{address}: {str(piece['error'])[:SAID]}")
                    yield piece
                elif line.startswith(b"error:"):
                    raise UpstreamDown(f"{address}: {line[6:].decode('utf-8', 'replace')[:SAID]}")

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > MOST_BYTES:
            raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
    return bytes(content)


def _refusal(address: str, answer: aiohttp.ClientResponse, body: bytes) -> Exception:
    text = f"{address}: HTTP {answer.status}: {body.decode('utf-8', 'replace')[:SAID]}"
    wait = answer.headers.get("retry-after", "")
    rest = min(int(wait), 60) if wait.isascii() and wait.isdigit() and len(wait) < 5 else 1
    if answer.status == 429:
        return UpstreamBusy(text, retry_after=rest)
    if answer.status in (400, 413, 422):
        return UpstreamRefused(text)
    return (UpstreamFailed if answer.status == 500 else UpstreamDown)(text, retry_after=rest)


def _said(error: BaseException) -> str:
    return str(error)[:SAID] or type(error).__name__
