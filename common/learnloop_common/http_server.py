"""HTTP servers on uvicorn: draining, a port of its own for probes, and background tasks."""

import asyncio
import contextlib
import logging
import signal
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Protocol, Self, TypeVar

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learnloop_common import telemetry, termination_message
from learnloop_common.settings import ConfigurationError
from learnloop_common.tls import own_context


def encoding_problem(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The refusal of a compressed body; "" if the body is not compressed."""
    named = next((value for name, value in headers if name.lower() == b"content-encoding"), b"")
    encoding = named.decode("latin-1").strip()[:40]
    if encoding.lower() in ("", "identity"):
        return ""
    return f"Content-Encoding: {encoding!r} is not supported: send the body without Content-Encoding"


log = logging.getLogger(__name__)
REPEAT_SECONDS, MOST_CAUSES = 10.0, 10_000
_CLOSE = (b"connection", b"close")


class LogThrottle:
    """Lets one line in ten seconds of the same cause through: strangers send as many as they like."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[tuple[object, ...], tuple[float, int]] = {}

    def due(self, *cause: object) -> str | None:
        """The end of the line, which counts those left out before it; None: leave this one out."""
        now = self._clock()
        last, left_out = self._lines.pop(cause, (now - REPEAT_SECONDS, 0))
        due = now - last >= REPEAT_SECONDS
        self._lines[cause] = (now, 0) if due else (last, left_out + 1)
        if len(self._lines) > MOST_CAUSES:
            del self._lines[next(iter(self._lines))]
        if not due:
            return None
        return f" ({left_out} more like it before)" if left_out else ""


class Drains(Protocol):
    """State of a server that drains before it ends."""

    draining: bool
    drain_seconds: float


@dataclass
class Drain:
    """Of a server that has nothing else to remember it."""

    drain_seconds: float
    draining: bool = False


class DrainingServer(uvicorn.Server):
    """On SIGTERM: not ready first, then keep serving `drain_seconds` while endpoints forget this pod, then stop."""

    def __init__(self, config: uvicorn.Config, arm: Drains) -> None:
        super().__init__(config)
        self._arm = arm
        self._stop_at = float("inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn's signal handler; a second signal stops immediately."""
        if self._arm.draining or sig != signal.SIGTERM:
            super().handle_exit(sig, frame)
            return
        log.info("draining for %g s", self._arm.drain_seconds)
        self._arm.draining = True
        self._stop_at = time.monotonic() + self._arm.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's heartbeat, ten a second; True ends the server."""
        return time.monotonic() >= self._stop_at or await super().on_tick(counter)


def closing(app: ASGIApp, drain: Drains) -> ASGIApp:
    """`app`, whose answers end their connections while it drains: the next request then goes to somebody else. So do
    answers to a request whose body was not read whole: no more of it is received."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        unread = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"

        async def received() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            if (drain.draining or unread) and message["type"] == "http.response.start":
                items = [header for header in message.get("headers", ()) if header[0].lower() != _CLOSE[0]]
                message = {**message, "headers": [*items, _CLOSE]}
            await send(message)

        await (app(scope, received, sent) if scope["type"] == "http" else app(scope, receive, send))

    return answered


HEADERS = [
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
]
"""Of every answer: no cache keeps it, and no browser makes a page of it."""
CONNECTIONS = 64
"""More than a kubelet, an operator and some Prometheus ever have."""


class SecondServer(uvicorn.Server):
    """A server in the event loop of another, which hears the signals for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them to the other."""
        yield


async def serve_both(
    ours: uvicorn.Server,
    probes: uvicorn.Config | None,
    endless: Mapping[str, Coroutine[Any, Any, None]] | None = None,
    passing: Mapping[str, Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Serve callers until `ours` ends, and probes in the same event loop; return the exit status.

    Args:
        endless: background tasks by name. The end of one, by an exception or not, ends the server with status 1, and
            the reason becomes the termination message.
        passing: tasks that may end; an exception of one ends the server in the same way.
    """
    work = {**(endless or {}), **(passing or {})}
    if probes is not None:
        work["probes"] = SecondServer(probes).serve()
    status = 0

    async def watched(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        nonlocal status
        try:
            await coroutine
            if (passing and name in passing) or ours.should_exit:
                return
            termination_message.leave(f"{name} ended: the server stops")
        except (Exception, SystemExit) as error:
            termination_message.end(error, "" if termination_message.says_all(error) else f"{name}: ")
        status, ours.should_exit = 1, True

    tasks = [asyncio.create_task(watched(name, coroutine), name=name) for name, coroutine in work.items()]
    try:
        await ours.serve()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return status


def uvicorn_config(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    connections: int,
    tls: ssl.SSLContext | None,
    lifespan: Literal["auto", "off"] = "off",
) -> uvicorn.Config:
    """For `app` at `host`:`port`. More concurrent connections than `connections` are answered 503."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan=lifespan,
        access_log=False,
        log_level="warning",
        log_config=None,  # its lines then look like all others
        proxy_headers=False,  # callers are known by their tokens, not by their addresses
        headers=HEADERS,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        limit_concurrency=connections,
        h11_max_incomplete_event_size=16_384,
        ssl_context_factory=(lambda *_: tls) if tls else None,
    )


PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class ProbesOnly:
    """ASGI: hands on GET of `PATHS`, and knows nothing else."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"] != "GET" or scope["path"] not in PATHS):
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._inner(scope, receive, send)


def probes_config(app: ASGIApp, host: str, port: int | None, tls: ssl.SSLContext | None) -> uvicorn.Config | None:
    """The server of `app`'s probes; None: they are served on its own port."""
    return None if port is None else uvicorn_config(ProbesOnly(app), host, port, connections=CONNECTIONS, tls=tls)


class ServerSettings(Protocol):
    """Settings that every server of an arm has."""

    @classmethod
    def read(cls) -> Self:
        """From the environment; raises ConfigurationError."""


Settings = TypeVar("Settings", bound=ServerSettings)


def run(settings: type[Settings], serve: Callable[[Settings, ssl.SSLContext | None], Coroutine[Any, Any, int]]) -> int:
    """Entry point of a server process: logs, settings, TLS, event loop. Returns the exit status."""
    import uvloop

    telemetry.set_up()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        own = settings.read()
        try:
            tls = own_context()
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"no certificate to serve with: {error}") from error
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(own, tls))
    except ConfigurationError as error:
        termination_message.leave(str(error))
        return 1
