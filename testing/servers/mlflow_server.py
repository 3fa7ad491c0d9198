"""The part of the REST interface of an MLflow 2 or 3 tracking server that a run needs, over real sockets.

Source: mlflow.org/docs/latest/rest-api.html. Searches understand the one form of filter that is sent: equalities joined
by `and`.
"""

import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_EQUALS = re.compile(r"(?:tags\.`([^`]+)`|attributes\.(\w+)) = '([^']*)'")


class Problem(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class MlflowServer(ThreadingHTTPServer):
    """Experiments and runs in memory."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.authorization: list[str | None] = []
        self.away = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """MLflow's answer."""
        if self.away:
            raise Problem(503, "TEMPORARILY_UNAVAILABLE")
        match path.removeprefix("/api/2.0/mlflow/"):
            case "experiments/get-by-name":
                return {"experiment": {"experiment_id": self._record(self.experiments, body["experiment_name"])}}
            case "experiments/create":
                if body["name"] in self.experiments:
                    raise Problem(400, "RESOURCE_ALREADY_EXISTS")
                self.experiments[body["name"]] = str(len(self.experiments) + 1)
                return {"experiment_id": self.experiments[body["name"]]}
            case "runs/create":
                run: dict[str, Any] = {
                    "info": {**body, "run_id": uuid.uuid4().hex, "status": "RUNNING"},
                    "metrics": [],
                    "params": {},
                }
                self.runs[run["info"]["run_id"]] = run
                return {"run": run}
            case "runs/search":
                return {"runs": [run for run in self.runs.values() if self._fits(run, body)]}
            case "runs/log-batch":
                run = self._record(self.runs, body["run_id"])
                metrics, parameters = body.get("metrics", []), body.get("params", [])
                if len(metrics) > 1000 or len(parameters) > 100 or any(len(p["value"]) > 6000 for p in parameters):
                    raise Problem(400, "INVALID_PARAMETER_VALUE")
                if any(run["params"].get(p["key"], p["value"]) != p["value"] for p in parameters):
                    raise Problem(400, "INVALID_PARAMETER_VALUE")
                run["metrics"] += metrics
                run["params"] |= {p["key"]: p["value"] for p in parameters}
                return {}
            case "runs/update":
                run = self._record(self.runs, body["run_id"])
                run["info"] |= body
                return {"run_info": run["info"]}
            case _:
                raise Problem(404, "ENDPOINT_NOT_FOUND")

    def _record(self, table: dict[str, Any], key: str) -> Any:
        if key not in table:
            raise Problem(404, "RESOURCE_DOES_NOT_EXIST")
        return table[key]

    def _fits(self, run: dict[str, Any], body: dict[str, Any]) -> bool:
        tags = {tag["key"]: tag["value"] for tag in run["info"]["tags"]}
        wanted = _EQUALS.findall(body["filter"])
        assert len(wanted) == body["filter"].count(" = ")
        fields = [tags.get(tag) if tag else run["info"].get(attribute) for tag, attribute, _ in wanted]
        return run["info"]["experiment_id"] in body["experiment_ids"] and fields == [value for *_, value in wanted]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MlflowServer

    def _serve(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = urlsplit(self.path)
        body = json.loads(text) if text else {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.server.authorization.append(self.headers.get("authorization"))
        try:
            status, answer = 200, self.server.answer(parts.path, body)
        except Problem as problem:
            status, answer = problem.status, {"error_code": problem.code, "message": problem.code.lower()}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _serve

    def log_message(self, *args: object) -> None: ...


@contextmanager
def mlflow_server() -> Iterator[MlflowServer]:
    """A running one."""
    server = MlflowServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
