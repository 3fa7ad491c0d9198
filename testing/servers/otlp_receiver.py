"""A receiver of OTLP over HTTP: decodes each body with OpenTelemetry's own protobuf classes, and keeps it.

A process writes what it has received to a file, a JSON object a line:

    python -m testing.servers.otlp_receiver FILE
"""

import json
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Receiver(ThreadingHTTPServer):
    """`spans` and `events` as dictionaries; `answer` is the status that it gives."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, keep: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.spans: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer, self.keep = 200, keep
        self.lock = threading.Lock()

    def begin(self) -> "Receiver":
        """Serves from a thread."""
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def take(self, path: str, body: bytes) -> None:
        spans = list(spans_of(body)) if path == "/v1/traces" else []
        with self.lock:
            self.spans.extend(spans)
            self.events.extend(event for span in spans for event in span["events"])
            if self.keep is not None:
                with self.keep.open("a") as file:
                    file.writelines(f"{json.dumps(item)}\n" for item in spans)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.headers.append({key.lower(): value for key, value in self.headers.items()})
        if self.server.answer < 300:
            self.server.take(self.path, body)
        self.send_response(self.server.answer)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def spans_of(body: bytes) -> Iterable[dict[str, Any]]:
    """One dictionary for each span."""
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        whose = _plain(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield {
                    "what": "span",
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "began": span.start_time_unix_nano,
                    "ended": span.end_time_unix_nano,
                    "failed": span.status.code == 2,
                    "attributes": _plain(span.attributes),
                    "links": [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    "resource": whose,
                    "events": [
                        {"name": item.name, "span": span.span_id.hex(), "attributes": _plain(item.attributes)}
                        for item in span.events
                    ],
                }


def _plain(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    return getattr(value, which) if which else None


if __name__ == "__main__":
    server = Receiver(Path(sys.argv[1]))
    print(server.url, flush=True)
    server.serve_forever()
