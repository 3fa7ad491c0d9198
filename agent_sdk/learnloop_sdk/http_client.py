"""HTTP by aiohttp: bounded POST requests, and the token that identifies the agent."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learnloop_api import names
from learnloop_common.tls import client_context
from learnloop_sdk.errors import LearnloopError


class EventLoopOwner:
    """Detects a new event loop: after `asyncio.run` has returned, or in the child of a fork."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def is_new(self) -> bool:
        """True at the first call from the running loop: connections, tasks and events have to be made again.

        Raises LearnloopError where another event loop of this process still runs, in another thread.
        """
        loop, process = asyncio.get_running_loop(), os.getpid()
        if loop is self._loop and process == self._process:
            return False
        if self._loop is not None and process == self._process and self._loop.is_running():
            raise LearnloopError(
                "Learnloop: used from a second event loop while the first one runs: make one Learnloop for each thread"
            )
        self._loop, self._process = loop, process
        return True


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def namespace_of(given: str | None) -> str:
    """The namespace given, else from the environment, else from the pod, else "default"."""
    if value := given or os.environ.get(names.ENV_NAMESPACE, "").strip():
        return value
    return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() if _NAMESPACE_FILE.is_file() else "default"


class Identity:
    """Headers that prove the caller's namespace."""

    def __init__(self, namespace: str, token_file: Path | None = None) -> None:
        self.namespace = namespace
        self._token_file = token_file or Path(os.environ.get(names.ENV_TOKEN_FILE) or names.TOKEN_FILE)

    def headers(self) -> dict[str, str]:
        """Return `authorization`, or without a token the namespace, for a data plane without authentication."""
        token = self.token()
        return {"authorization": f"Bearer {token}"} if token else {names.HEADER_NAMESPACE: self.namespace}

    def token(self) -> str:
        """The service-account token as it is now; empty without one."""
        try:
            return self._token_file.read_text(encoding="utf-8").strip()
        except OSError:
            return ""


MAX_BODY = 16_777_216
_inherited: list[Any] = []
"""Sessions of a parent process: closing one here would remove its connections from the parent's epoll instance."""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; names of headers in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Status and beginning of the body, for a message."""
        return f"HTTP {self.status}: {self.body[:1200].decode('utf-8', 'replace')[:300]}"


class Http:
    """One aiohttp session, opened by the first request of the running event loop."""

    def __init__(self) -> None:
        import aiohttp  # two fifths of the package's import time: the first client pays for it

        self._aiohttp = aiohttp
        self._owner = EventLoopOwner()
        self._session: Any = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Response:
        """Send JSON; raises OSError, TimeoutError, and LearnloopError for an invalid URL."""
        try:
            async with asyncio.timeout(seconds):
                return await self._post(url, body, {"content-type": "application/json", **headers})
        except self._aiohttp.InvalidURL as error:
            raise LearnloopError(f"endpoint: {url!r} is not valid: write http://<host>[:<port>]") from error
        except self._aiohttp.ClientError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        if self._session is not None and not self._owner.is_new():
            await self._session.close()
        self._session = None

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        async with self._opened().post(url, data=body, headers=headers, allow_redirects=False) as answer:
            content = bytearray()
            async for part in answer.content.iter_any():
                content += part
                if len(content) > MAX_BODY:
                    raise ConnectionError(f"{url} answers more than {MAX_BODY} bytes")
            return Response(answer.status, bytes(content), {name.lower(): x for name, x in answer.headers.items()})

    def _opened(self) -> Any:
        new = self._owner.is_new()
        if new and self._session is not None:
            _inherited.append(self._session)
        if new or self._session is None or self._session.closed:
            self._session = self._aiohttp.ClientSession(
                connector=self._aiohttp.TCPConnector(limit=0, ssl=client_context()),
                cookie_jar=self._aiohttp.DummyCookieJar(),
                timeout=self._aiohttp.ClientTimeout(total=None),
                trust_env=False,
            )
        return self._session
