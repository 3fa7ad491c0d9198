"""One ConfigMap of an API server whose clock shows another time: no real one can be told what its clock says."""

import json
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from learnloop_common.tls import server_context
from testing.certificates import authority, folder


class ClockedConfigMap:
    """Its `routing.json`, read and watched by TLS, with a Date as `ahead` seconds of ours.

    Attributes:
        account: a folder as a pod's service account has it, by which the server is trusted.
    """

    def __init__(self, where: Path, ahead: float) -> None:
        self.ahead, self._text, self._version = ahead, "", 1
        self._changed = threading.Condition()
        by = authority()
        files = folder(where, by)
        self.account = where
        (where / "token").write_text("token")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = server_context(files.certificate, files.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """By which a server of learnloop reads its table here."""
        return {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self._server.server_address[1]),
            "LEARNLOOP_ROUTING_FILE": "",
            "LEARNLOOP_TEST_ACCOUNT": str(self.account),
        }

    def now(self) -> float:
        """The time by its clock."""
        return time.time() + self.ahead

    def write(self, text: str) -> None:
        """Another table; watchers hear of it immediately."""
        with self._changed:
            self._text, self._version = text, self._version + 1
            self._changed.notify_all()

    def stop(self) -> None:
        """It is gone."""
        self._server.shutdown()
        self._server.server_close()

    def _object(self) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": str(self._version)}, "data": {"routing.json": self._text}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        own = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def date_time_string(self, timestamp: float | None = None) -> str:
                return formatdate(own.now(), usegmt=True)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                version = -1
                while True:
                    with own._changed:
                        while own._version == version:
                            own._changed.wait()
                        version = own._version
                        line = json.dumps({"type": "MODIFIED", "object": own._object()}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))

        return Handler
