"""A console over a cluster that a test writes, and a browser that says what the test wants."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

from learnloop_operator.cli.console.change_log import ChangeLog
from learnloop_operator.cli.console.orders import Gate
from learnloop_operator.cli.console.server import Console, ConsoleServer
from learnloop_operator.cli.data_plane_access import DataPlaneAccess
from learnloop_operator.cli.objects import CommandError


class WrittenCluster:
    """One rollout with a canary; remembers what was annotated, and answers as a data plane what `records` says.

    `objects` are there by plural and name, in place of that rollout.
    """

    def __init__(self, namespace: str = "ns", records: Mapping[str, Any] | None = None) -> None:
        self.namespace, self.annotated, self.requests = namespace, list[tuple[str, str]](), list[Any]()
        self.records = records or {}
        self.objects = dict[tuple[str, str], Any]()
        self.patched = {"modeldeployments"}

    def within(self, namespace: str) -> "WrittenCluster":
        self.namespace = namespace
        return self

    def user(self) -> str:
        return "anna"

    def get(self, plural: str, name: str) -> dict[str, Any]:
        if self.objects:
            return cast(dict[str, Any], self.objects[plural, name])
        if name != "walker":
            raise CommandError(f"no ModelDeployment {name!r}")
        canary = {"revision": "3f9a2c81", "uri": "learnloop://ns/1"}
        return {
            "metadata": {"name": name, "uid": "u"},
            "spec": {},
            "status": {"phase": "Progressing", "canary": canary},
        }

    def allowed(self, verb: str, plural: str, namespace: str | None) -> bool:
        return plural in self.patched

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None:
        self.annotated += [(f"{plural}/{name}", f"{key}={value}") for key, value in values.items()]

    def events(self, body: Any) -> list[Any]:
        at = datetime(2026, 1, 31, 12, tzinfo=UTC)
        return [{"at": at, "type": "Normal", "reason": "Stepping", "note": "25 % of new episodes from now on"}]

    def token(self, account: str, audience: str) -> str:
        return "t"

    def forward(self, service: str) -> Callable[..., tuple[int, str]]:
        def send(method: str, path: str, query: Any, headers: Any, body: Any, seconds: float) -> tuple[int, str]:
            self.requests.append((method, path, dict(query), body))
            if path not in self.records:
                return 404, json.dumps({"error": {"message": f"nothing at {path}"}})
            return 200, json.dumps(self.records[path])

        return send


class Browser:
    """Requests of one session; `cookie` and `key` are what the exchange of the token gave."""

    def __init__(self, port: int) -> None:
        self.port, self.cookie, self.key = port, "", ""

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, dict[str, str], bytes]:
        """Headers by their name with _ for -; None leaves one out that is sent otherwise."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie}
        if body is not None:
            own = f"http://127.0.0.1:{self.port}"
            sent |= {"Content-Type": "application/json", "Origin": own, "X-Learnloop-Key": self.key}
        for name, value in headers.items():
            sent.pop(name.replace("_", "-"), None)
            if value is not None:
                sent[name.replace("_", "-")] = value
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            if content is not None and "Content-Length" not in sent:
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            answer = connection.getresponse()
            return answer.status, {name.title(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def enter(self, token: str) -> int:
        status, headers, _ = self.ask("GET", f"/?token={token}")
        if status == 303:
            self.cookie, self.key = headers["Set-Cookie"].split(";")[0], headers["Location"].partition("=")[2]
        return status

    def stream(self) -> Iterator[tuple[str, Any]]:
        """Name and data of each event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", "/events", headers={"Cookie": self.cookie})
        answer, event = connection.getresponse(), dict[str, str]()
        try:
            while line := answer.readline().decode().rstrip("\n") or True:
                if line is True:
                    if "data" in event:
                        yield event["event"], json.loads(event["data"])
                    event = {}
                else:
                    name, _, value = str(line).partition(": ")
                    event[name] = value
        finally:
            answer.close()
            connection.close()


@contextmanager
def served(cluster: Any, log: ChangeLog | None = None) -> Iterator[tuple[Console, Browser]]:
    """The console and a browser that has not entered yet."""
    server = ConsoleServer()
    console = Console(
        gate=Gate(server.port),
        log=log or ChangeLog(),
        within=cluster.within,
        plane=DataPlaneAccess,
        scope={"user": "anna", "namespaces": None, "message": ""},
        problems={},
    )
    thread = threading.Thread(target=server.serve, args=(console,), daemon=True)
    thread.start()
    try:
        yield console, Browser(server.port)
    finally:
        server.stop()
        console.log.wake()
        thread.join(10.0)
