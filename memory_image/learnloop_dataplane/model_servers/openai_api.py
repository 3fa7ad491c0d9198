"""Requests to a server that speaks OpenAI's wire format: vLLM, TEI, Ollama, LiteLLM or a provider.

Nothing it does is trusted: an answer has a time and a size, redirects are not followed, and one that failed is left
alone for a while.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import orjson

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.model_servers.circuit_breaker import Breaker

T = TypeVar("T")
REFUSED = frozenset({400, 413, 422})  # how servers answer what their model does not take
SLOW_SECONDS = 0.25  # a caller that waited so long and left says something about the server
SAID = 200  # characters of what went wrong that are told


class NotTaken(Exception):
    """The server answers, but not to this: 400, 413 or 422."""

    def __init__(self, status: int) -> None:
        super().__init__(f"refused with {status}")
        self.status = status


class ModelServer:
    """One server, one key.

    Args:
        url: base of the API, e.g. https://host/v1.
        key: bearer token, if the server wants one.
        seconds: for a whole answer.
        most_bytes: of an answer.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        seconds: float,
        most_bytes: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._seconds = seconds
        self._most = most_bytes
        self._breaker = Breaker()
        # A compressed answer is refused: unpacked, a small one could fill the memory before it is measured.
        plain = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers = plain | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(
            headers=headers, timeout=seconds, trust_env=False, follow_redirects=False, transport=transport
        )

    async def post(self, path: str, body: Any, read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer's JSON.

        Args:
            read: raises ValueError, LookupError or TypeError for what cannot be used.

        Raises:
            NotTaken: this request is not what the server takes.
            Unavailable: no whole answer in time, one that cannot be used, an error, or it is left alone for now.
        """
        if not self._breaker.allows():
            raise Unavailable(f"the model server {self.url} (it failed a moment ago and is left alone)")
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                found = read(await self._ask(path, body))
        except NotTaken:
            self._breaker.worked()
            raise
        except asyncio.CancelledError:
            if time.monotonic() - started >= SLOW_SECONDS:
                self._breaker.failed()
            else:
                self._breaker.gave_up()
            raise
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, LookupError, TypeError) as error:
            self._breaker.failed(_rest(error))
            raise Unavailable(f"the model server {self.url} ({_said(error)})") from error
        except BaseException:
            self._breaker.gave_up()
            raise
        self._breaker.worked()
        return found

    async def _ask(self, path: str, body: Any) -> Any:
        async with self._client.stream("POST", f"{self.url}/{path}", content=orjson.dumps(body)) as answer:
            if answer.status_code in REFUSED:
                raise NotTaken(answer.status_code)
            answer.raise_for_status()
            if (encoding := answer.headers.get("content-encoding", "identity")) != "identity":
                raise ValueError(f"an answer with Content-Encoding {encoding[:20]}, though identity was asked for")
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > self._most:
                    raise ValueError(f"an answer of more than {self._most} bytes")
        return orjson.loads(content)

    def distrust(self) -> None:
        """It answers, but to nothing."""
        self._breaker.failed()

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()


def _rest(error: BaseException) -> float:
    """How long the server asks to be left alone; 0: it does not say."""
    if not isinstance(error, httpx.HTTPStatusError):
        return 0.0
    said = error.response.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 7 else 0.0


def _said(error: BaseException) -> str:
    return str(error)[:SAID] or type(error).__name__
