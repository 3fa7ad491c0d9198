"""Sends spans to an OpenTelemetry collector from a thread of its own: nobody who hands one over ever waits.

OTLP over HTTP with protobuf bodies (OpenTelemetry protocol specification, "OTLP/HTTP"). The queue is bounded. What does
not fit is dropped and counted, and a collector that is away costs one log line when it goes and one when it is back.
"""

import contextlib
import http.client
import logging
import queue
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from learnloop_common.telemetry.spans import Attributes, Span

log = logging.getLogger(__name__)

MOST_WAITING = 4096
MOST_AT_ONCE = 256
TIMEOUT_SECONDS = 5.0
LOOK_SECONDS = 0.2
"""How often the thread looks whether all is over."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
ATTEMPTS = 8
LATER = (429, 502, 503, 504)
"""Answers after which the same may be sent again (OTLP/HTTP, "Retryable Response Codes")."""
MAX_ANSWER = 65_536
Counted = Callable[[str, int], None]


class _Refused(Exception):
    """The collector will never take it."""


class OtlpExporter:
    """One thread, one connection.

    Args:
        endpoint: address of a collector, e.g. http://collector:4318; /v1/traces and /v1/logs are added.
        resource: whose spans these are.
        headers: sent with each request, such as a token.
        counted: is told how many spans were `sent`, `dropped` (no room) or `failed` (refused, or nobody took them).
        tls: for https; left out, the system's authorities.
    """

    def __init__(
        self,
        endpoint: str,
        resource: Attributes,
        *,
        headers: Mapping[str, str] | None = None,
        counted: Counted | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = urlsplit(endpoint)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"endpoint={endpoint!r}: set http:// or https:// and a host, e.g. http://collector:4318")
        self._resource, self._tls = dict(resource), tls
        self._headers = {"content-type": "application/x-protobuf", **(headers or {})}
        self._counted = counted or (lambda _, __: None)
        self._waiting: queue.Queue[Span] = queue.Queue(MOST_WAITING)
        self._over, self._away = threading.Event(), False
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def send(self, spans: Sequence[Span]) -> None:
        """Hands them over, in order. Never waits, never raises."""
        for number, span in enumerate(spans):
            try:
                self._waiting.put_nowait(span)
            except queue.Full:
                self._counted("dropped", len(spans) - number)
                return

    def close(self, seconds: float = 1.0) -> None:
        """Sends what waits, for at most so long; what is left is lost."""
        self._over.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        from learnloop_common.telemetry.otlp_messages import log_request, trace_request

        while not (self._over.is_set() and self._waiting.empty()):
            batch = self._next()
            if not batch:
                continue
            bodies = (
                ("/v1/traces", trace_request(batch, self._resource)),
                ("/v1/logs", log_request(batch, self._resource)),
            )
            taken = all([self._deliver(path, body) for path, body in bodies if body])
            self._counted("sent" if taken else "failed", len(batch))
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> list[Span]:
        batch: list[Span] = []
        with contextlib.suppress(queue.Empty):
            batch.append(self._waiting.get(timeout=LOOK_SECONDS))
            while len(batch) < MOST_AT_ONCE:
                batch.append(self._waiting.get_nowait())
        return batch

    def _deliver(self, path: str, body: bytes) -> bool:
        pause = FIRST_PAUSE
        for attempt in range(ATTEMPTS):
            try:
                self._post(path, body)
            except _Refused as error:
                self._tell(str(error))
                return False
            except (OSError, http.client.HTTPException) as error:
                self._forget_connection()
                self._tell(str(error) or type(error).__name__)
                if attempt + 1 == ATTEMPTS or self._over.wait(pause):
                    return False
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self._tell("")
                return True
        return False

    def _post(self, path: str, body: bytes) -> None:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("POST", f"{self._url.path.rstrip('/')}{path}", body, self._headers)
        answer = self._connection.getresponse()
        answer.read(MAX_ANSWER)
        if not answer.isclosed():
            self._forget_connection()
        if answer.status in LATER:
            raise OSError(f"{path}: HTTP {answer.status}")
        if answer.status >= 300:
            raise _Refused(f"{path}: HTTP {answer.status}")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = str(self._url.hostname), self._url.port
        if self._url.scheme == "https":
            context = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(host, port or 443, timeout=TIMEOUT_SECONDS, context=context)
        return http.client.HTTPConnection(host, port or 80, timeout=TIMEOUT_SECONDS)

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _tell(self, problem: str) -> None:
        """One line when it goes wrong, one when it is well again."""
        if problem and not self._away:
            log.warning("traces do not reach %s: %s; what waits is kept while there is room", self._url.netloc, problem)
        elif not problem and self._away:
            log.info("traces reach %s again", self._url.netloc)
        self._away = bool(problem)


def headers_of(text: str) -> dict[str, str]:
    """Headers from `key=value,key=value`, percent-encoded, as OTEL_EXPORTER_OTLP_HEADERS has them.

    Raises:
        ValueError: a part is no pair; says which one by its number, for its value may be a secret.
    """
    found = {}
    for number, part in enumerate(filter(None, text.split(",")), 1):
        key, separator, value = part.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"part {number} is no pair: write key=value,key=value, percent-encoded")
        found[unquote(key.strip()).lower()] = unquote(value.strip())
    return found
