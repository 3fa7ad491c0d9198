"""HTTP on loopback: the pages, a stream of changes, reads of the data plane, and orders."""

import json
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.cli.console.browser_access import ForeignRequestError, Gate
from learnloop_operator.cli.console.change_log import ChangeLog, ReadChanges
from learnloop_operator.cli.console.orders import NAME, carry_out, helps
from learnloop_operator.cli.console.records import Records
from learnloop_operator.cli.console.static_files import StaticFile, static_files
from learnloop_operator.cli.errors import CommandError

MOST_BODY = 16_384
MOST_FIELDS = 16
MOST_STREAMS = 16
HEARTBEAT_SECONDS = 15.0
REQUEST_SECONDS = 30.0
MOST_CLIENTS = 64
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Json = Callable[["Console", Mapping[str, str]], Any]


class Rights(Protocol):
    """Asks what the caller may do."""

    def of(self, namespace: str) -> dict[str, bool]:
        """By verb. Raises CommandError."""


@dataclass
class Console:
    """What the requests of one console share.

    Attributes:
        within: the caller's cluster in a namespace.
        options: of the command, as DataPlaneAccess reads them.
        scope: what of the cluster is seen, for the pages to say.
        problems: what cannot be read now, by kind and namespace.
        away: why nothing is known now, because the API server does not answer; empty while it does.
    """

    gate: Gate
    log: ChangeLog
    within: Callable[[str], Cluster]
    rights: Rights
    options: Namespace
    scope: Mapping[str, Any]
    problems: Mapping[str, str]
    away: Callable[[], str] = str
    files: Mapping[str, StaticFile] = field(default_factory=static_files)
    streams: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_STREAMS))
    _records: dict[str, Records] = field(default_factory=dict)

    def records(self, namespace: str) -> Records:
        """One for each namespace, so that a token is asked for once in a while and not for each read."""
        return self._records.setdefault(namespace, Records(self.within(namespace), self.options))


class ConsoleServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 alone, on a port that the system chooses; a thread for each connection."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, port: int = 0) -> None:
        self.console: Console | None = None
        self._clients = threading.Semaphore(MOST_CLIENTS)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hang up on more clients than a browser makes."""
        if not self._clients.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error worth a stack trace."""


class _Handler(BaseHTTPRequestHandler):
    server: ConsoleServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "learnloop-console", ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Addresses hold a token once, and nobody reads such a log."""

    def _get(self, console: Console) -> None:
        path, query = self._asked()
        if path == "/" and "token" in query:
            cookie, key = console.gate.exchange(self._headers(), query["token"])
            # The key stays behind the #, which no server and no log gets to see.
            self._send(303, b"", "text/plain", {"Set-Cookie": cookie, "Location": f"/#key={key}"})
            return
        console.gate.check(self._headers())
        if path == "/events":
            self._stream(console, self.headers.get("Last-Event-ID") or query.get("after"))
        elif path == "/about":
            self._json({**console.scope, "problems": dict(console.problems), "orders": helps()})
        elif path == "/rights":
            self._json(console.rights.of(_namespace(query)))
        elif path == "/happened":
            namespace, plural, name = _namespace(query), query.get("plural", ""), query.get("name", "")
            self._json(_events(console.within(namespace), plural, name))
        elif path.startswith("/records/"):
            self._json(console.records(_namespace(query)).read(path.removeprefix("/records/"), query))
        else:
            self._file(console, "/index.html" if path == "/" else path)

    def _post(self, console: Console) -> None:
        console.gate.check_order(self._headers())
        path, _ = self._asked()
        if path != "/orders":
            self._problem(404, f"{path[:200]!r}: there is no such page")
            return
        if self.headers.get_content_type() != "application/json":
            raise CommandError("Content-Type: send application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            raise CommandError(f"Content-Length {length[:20]!r}: send at most {MOST_BODY} bytes")
        try:
            order = json.loads(self.rfile.read(int(length)))
            asked = {name: str(order[name]) for name in ("namespace", "verb", "name", "confirm")}
            seen = order.get("seen")
            if not isinstance(seen, dict | None):
                raise TypeError("seen")
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError("body: send namespace, verb, name, confirm and what was seen as JSON") from error
        cluster = console.within(_namespace(asked))
        self._json({"said": carry_out(cluster, asked["verb"], asked["name"], asked["confirm"], seen)})

    def _answer(self, work: Callable[[Console], None]) -> None:
        console = self.server.console
        try:
            if console is None:
                raise CommandError("the console is starting")
            work(console)
        except ForeignRequestError as error:
            self.close_connection = True
            self._problem(403, str(error))
        except CommandError as error:
            # A body that was not read would be taken for the next request.
            self.close_connection = True
            self._problem(400, str(error))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.close_connection = True
            self._problem(500, f"an answer has another form than this command knows ({error!r}); is it as new?")
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _stream(self, console: Console, mark: str | None) -> None:
        if not console.streams.acquire(blocking=False):
            raise CommandError(f"more than {MOST_STREAMS} pages are open: close one")
        try:
            self.close_connection = True
            self._head(200, "text/event-stream", {"Cache-Control": "no-store", "Connection": "close"})
            # A page behind a sleeping lid reads nothing; its thread ends instead of waiting for ever.
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.wfile.write(b"retry: 1000\n\n")
            told = ""
            while True:
                found, away = console.log.read(mark, HEARTBEAT_SECONDS), console.away()
                news = _event(found) if found.snapshot is not None or found.changes else b""
                if away != told:
                    news, told = news + _away(found.mark, away), away
                self.wfile.write(news or b": alive\n\n")
                self.wfile.flush()
                mark = found.mark
        finally:
            console.streams.release()

    def _file(self, console: Console, path: str) -> None:
        found = console.files.get(path)
        if found is None:
            self._problem(404, f"{path[:200]!r}: there is no such page")
        elif self.headers.get("If-None-Match") == found.tag:
            self._send(304, b"", found.type, {"ETag": found.tag})
        else:
            self._send(200, found.content, found.type, {"ETag": found.tag, "Cache-Control": "no-cache"})

    def _json(self, body: Any) -> None:
        self._send(200, json.dumps(body, default=str).encode(), "application/json", {"Cache-Control": "no-store"})

    def _problem(self, status: int, sentence: str) -> None:
        kept = {"Cache-Control": "no-store"}
        if "text/html" in self._headers().get("Accept", ""):  # a person opened the address, and not a page of ours
            page = f"<!doctype html><title>learnloop</title><h1>Not here</h1><p>{escape(sentence)}</p>"
            self._send(status, page.encode(), "text/html; charset=utf-8", kept)
            return
        self._send(status, json.dumps({"error": sentence}).encode(), "application/json", kept)

    def _send(self, status: int, body: bytes, type_: str, headers: Mapping[str, str]) -> None:
        length = {} if status == 304 else {"Content-Length": str(len(body))}
        self._head(status, type_, {**headers, **length})
        self.wfile.write(body)

    def _head(self, status: int, type_: str, headers: Mapping[str, str]) -> None:
        self.send_response(status, HTTPStatus(status).phrase)
        for name, value in {**SECURITY_HEADERS, "Content-Type": type_, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _asked(self) -> tuple[str, Mapping[str, str]]:
        try:
            parts = urlsplit(self.path)
            return parts.path, dict(parse_qsl(parts.query, max_num_fields=MOST_FIELDS))
        except ValueError as error:
            raise CommandError(f"address {self.path[:200]!r}: send a path and at most {MOST_FIELDS} fields") from error

    def _headers(self) -> Mapping[str, str]:
        return {name.title(): value for name, value in self.headers.items()}


def _event(found: ReadChanges) -> bytes:
    if found.snapshot is not None:
        return f"event: snapshot\nid: {found.mark}\ndata: {json.dumps(found.snapshot)}\n\n".encode()
    data = json.dumps([change.data() for change in found.changes])
    return f"event: changes\nid: {found.mark}\ndata: {data}\n\n".encode()


def _away(mark: str, why: str) -> bytes:
    return f"event: cluster\nid: {mark}\ndata: {json.dumps({'away': why})}\n\n".encode()


def _namespace(asked: Mapping[str, str]) -> str:
    found = asked.get("namespace", "")
    if not NAME.fullmatch(found):
        raise CommandError(f"namespace {found[:64]!r} is no name of a namespace")
    return found


def _events(cluster: Cluster, plural: str, name: str) -> list[dict[str, Any]]:
    """The newest Events about an object."""
    if plural not in ("learningagents", "trainingjobs", "modeldeployments") or not NAME.fullmatch(name):
        raise CommandError(f"plural {plural[:64]!r}, name {name[:64]!r}: name an agent, a run or a rollout")
    found = cluster.events(cluster.get(plural, name))
    return [{**item, "at": item["at"].isoformat()} for item in found[-50:]]
