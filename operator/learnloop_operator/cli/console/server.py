"""`console`: pages, a stream of changes, reads of the data plane and orders, over HTTP on loopback."""

import json
import signal
import socket
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from learnloop_operator.cli import data_plane_access, main
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.console import change_log, orders
from learnloop_operator.cli.objects import CommandError

PAGES = Path(__file__).with_name("pages")
LIST_SECONDS = 10.0
MOST_BODY = 16_384
MOST_STREAMS = 16
MOST_CLIENTS = 64
HEARTBEAT_SECONDS = 15.0
SESSION_SECONDS, IDLE_SECONDS = 12 * 3600.0, 3600.0
NO_STORE = {"Cache-Control": "no-store"}
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
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class Console:
    """The state that the requests of one console share.

    Attributes:
        within: the caller's cluster in a namespace.
        plane: the data plane as that namespace's account.
        scope: the caller and the visible namespaces, for the pages.
        problems: unreadable kinds and namespaces, with the reason.
        away: why the API server cannot be reached; empty while it answers.
    """

    gate: orders.Gate
    log: change_log.ChangeLog
    within: Callable[[str], Cluster]
    plane: Callable[[Cluster], data_plane_access.DataPlaneAccess]
    scope: Mapping[str, Any]
    problems: Mapping[str, str]
    away: Callable[[], str] = str
    streams: int = 0
    ended: bool = False
    began: float = field(default_factory=time.monotonic)
    streamed: float = field(default_factory=time.monotonic)
    _records: dict[str, orders.Records] = field(default_factory=dict)

    def over(self, now: float) -> bool:
        """A page has ended it, no page was open for IDLE_SECONDS, or it is SESSION_SECONDS old."""
        self.streamed = now if self.streams else self.streamed
        return self.ended or now - self.began >= SESSION_SECONDS or now - self.streamed >= IDLE_SECONDS

    def records(self, namespace: str) -> orders.Records:
        """One for each namespace, which keeps its token."""
        if namespace not in self._records:
            self._records[namespace] = orders.Records(self.plane(self.within(namespace)))
        return self._records[namespace]

    def read(self, path: str, query: Mapping[str, str]) -> Any:
        """The JSON at a path; None where there is none."""
        if path == "/about":
            return {
                **self.scope,
                "problems": dict(self.problems),
                "orders": {name: main.VERBS[name].help for name in orders.ORDERS},
            }
        if path == "/rights":
            return orders.rights(self.within(_namespace(query)))
        if path == "/happened":
            plural, name = query.get("plural", ""), query.get("name", "")
            return _events(self.within(_namespace(query)), plural, name)
        if path.startswith("/records/"):
            return self.records(_namespace(query)).read(path.removeprefix("/records/"), query)
        return None

    def order(self, body: bytes) -> Any:
        try:
            order = json.loads(body)
            fields = {name: str(order[name]) for name in ("namespace", "verb", "name")}
            shown = order.get("shown")
            if not isinstance(shown, dict | None):
                raise TypeError("shown")
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError("body: send namespace, verb, name and what was shown as JSON") from error
        cluster = self.within(_namespace(fields))
        return {"message": orders.carry_out(cluster, fields["verb"], fields["name"], shown)}


def application(console: Console) -> Starlette:
    """One route; each answer has the security headers."""
    static = StaticFiles(directory=PAGES)

    async def answer(request: Request) -> Response:
        try:
            response = await (_post if request.method == "POST" else _get)(console, static, request)
        except orders.ForeignRequestError as error:
            response = _problem(request, 403, str(error))
        except CommandError as error:
            response = _problem(request, 400, str(error))
        except HTTPException as error:
            response = _problem(request, error.status_code, f"unknown page {request.url.path[:200]!r}")
        except ClientDisconnect:
            response = Response(status_code=400)
        except MALFORMED as error:
            sentence = f"an answer has an unknown form ({error!r}): is this command as new as the installation?"
            response = _problem(request, 500, sentence)
        response.headers.update(SECURITY_HEADERS)
        return response

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])


async def _get(console: Console, static: StaticFiles, request: Request) -> Response:
    path, query = request.url.path, dict(request.query_params)
    if path == "/" and "token" in query:
        cookie, key = console.gate.exchange(request.headers, query["token"])
        # The part after # reaches no server and no log.
        return RedirectResponse(f"/#key={key}", 303, {"Set-Cookie": cookie})
    console.gate.check(request.headers)
    if path == "/events":
        if console.streams >= MOST_STREAMS:
            raise CommandError(f"more than {MOST_STREAMS} pages are open: close one")
        headers = NO_STORE | {"Connection": "close"}
        return StreamingResponse(_stream(console), media_type="text/event-stream", headers=headers)
    answer = await run_in_threadpool(console.read, path, query)
    if answer is not None:
        return _json(answer)
    response = await static.get_response("index.html" if path == "/" else path.lstrip("/"), request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response


async def _post(console: Console, _: StaticFiles, request: Request) -> Response:
    console.gate.check_order(request.headers)
    if request.url.path == "/end":
        console.ended = True
        return _json({})
    if request.url.path != "/orders":
        raise HTTPException(404)
    if request.headers.get("Content-Type", "").partition(";")[0] != "application/json":
        raise CommandError("Content-Type: send application/json")
    length = request.headers.get("Content-Length", "")
    if not length.isdecimal() or int(length) > MOST_BODY:
        raise CommandError(f"Content-Length {length[:20]!r}: send at most {MOST_BODY} bytes")
    return _json(await run_in_threadpool(console.order, await request.body()))


async def _stream(console: Console) -> AsyncIterator[bytes]:
    """A snapshot, then every change: a browser that connects again gets the snapshot again."""
    console.streams += 1
    number, reported = None, ""
    try:
        yield b"retry: 1000\n\n"
        while True:
            news = await run_in_threadpool(console.log.read, number, HEARTBEAT_SECONDS)
            lines, away = _changes(news), console.away()
            if away != reported:
                lines, reported = lines + _event("cluster", {"away": away}), away
            yield lines or b": alive\n\n"
            number = news.number
    finally:
        console.streams -= 1


def _changes(news: change_log.ReadChanges) -> bytes:
    if news.snapshot is not None:
        return _event("snapshot", news.snapshot)
    changes = [
        {"plural": plural, "namespace": namespace, "name": name, "object": body}
        for (plural, namespace, name), body in news.changes.items()
    ]
    return _event("changes", changes) if changes else b""


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _json(body: Any) -> Response:
    return Response(json.dumps(body, default=str), media_type="application/json", headers=NO_STORE)


def _problem(request: Request, status: int, sentence: str) -> Response:
    if "text/html" in request.headers.get("Accept", ""):  # a person opened the address, not one of our pages
        page = f"<!doctype html><title>learnloop</title><h1>Not here</h1><p>{escape(sentence)}</p>"
        return HTMLResponse(page, status, NO_STORE)
    return JSONResponse({"error": sentence}, status, NO_STORE)


def _namespace(fields: Mapping[str, str]) -> str:
    namespace = fields.get("namespace", "")
    if not orders.NAME.fullmatch(namespace):
        raise CommandError(f"invalid namespace {namespace[:64]!r}: name one")
    return namespace


def _events(cluster: Cluster, plural: str, name: str) -> list[dict[str, Any]]:
    if plural not in ("learningagents", "trainingjobs", "modeldeployments") or not orders.NAME.fullmatch(name):
        raise CommandError(f"plural {plural[:64]!r}, name {name[:64]!r}: name an agent, a run or a rollout")
    events: list[Any] = cluster.events(cluster.get(plural, name))
    return [{**item, "at": item["at"].isoformat()} for item in events[-50:]]


class ConsoleServer:
    """Uvicorn on 127.0.0.1 alone. The port is taken when it is made."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(32)  # a browser that is faster than uvicorn waits
        self.port = int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None
        self._stopped = threading.Event()

    def serve(self, console: Console) -> None:
        """Answer until `stop`; Ctrl-C and SIGTERM belong to the caller."""
        config = uvicorn.Config(
            application(console),
            access_log=False,  # addresses hold the token once
            log_level="critical",
            http="h11",
            lifespan="off",
            server_header=False,
            limit_concurrency=MOST_CLIENTS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        if not self._stopped.is_set():
            self._server.run([self._socket])
        self._socket.close()

    def stop(self) -> None:
        """End soon; open streams are cut."""
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True


def open_console(
    cluster: Cluster, plane: Callable[[Cluster], data_plane_access.DataPlaneAccess], namespaces: str = "", port: int = 0
) -> tuple[ConsoleServer, Console, change_log.ClusterWatch]:
    """The server, its console and the watch; none of them is started.

    `namespaces`: the visible ones; left out, all where the caller may list them, else the context's own.

    Raises:
        CommandError: the port is taken, or the API server does not answer.
    """
    names: tuple[str, ...] | None = tuple(dict.fromkeys(name for name in namespaces.split(",") if name))
    message = ""
    if not names and cluster.allowed("list", "modeldeployments", None):
        names = None
    elif not names:
        names, message = (cluster.namespace,), "You may read one namespace of the cluster; --namespaces names others."
    watch = change_log.ClusterWatch(cluster, change_log.ChangeLog(), names)
    try:
        server = ConsoleServer(port)
    except OSError as error:
        raise CommandError(f"--port {port}: {error.strerror}; name another, or leave it out") from error
    made = Console(
        gate=orders.Gate(server.port),
        log=watch.log,
        within=cluster.within,
        plane=plane,
        scope={"user": cluster.user(), "namespaces": names, "message": message},
        problems=watch.problems,
        away=watch.away,
    )
    return server, made, watch


def console(
    cluster: Cluster,
    plane: data_plane_access.DataPlaneAccess,
    namespaces: Annotated[
        str, typer.Option(metavar="A,B", help="only these; left out, all that the caller may read")
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="on 127.0.0.1; left out, a free one")] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open", help="open the browser; other users of the machine may see its arguments")
    ] = False,
) -> str:
    """Serve until Ctrl-C, or SIGTERM.

    Raises:
        CommandError: the port is taken, or the API server does not answer.
    """
    server, opened, watch = open_console(cluster, plane.within, namespaces, port)
    serving = threading.Thread(target=server.serve, args=(opened,), daemon=True)
    # A shell makes its background processes ignore Ctrl-C; either signal ends the console.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        watch.start()
        watch.wait_for_lists(LIST_SECONDS)
        serving.start()
        address = opened.gate.address
        print(f"{address}\nThe address works once, in one browser of this machine. Ctrl-C ends it.", flush=True)
        if open_browser:
            webbrowser.open(address)
        while serving.is_alive() and not opened.over(time.monotonic()):
            serving.join(1.0)
    except KeyboardInterrupt:
        return ""
    finally:
        watch.stop()
        server.stop()
        opened.log.wake()  # streams wait for changes in threads
    return ""
