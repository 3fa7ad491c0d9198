"""Git's smart protocol over HTTP, for tools that clone by no file URL: https://git-scm.com/docs/http-protocol."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zlib import MAX_WBITS, decompress

_SERVICE = "git-upload-pack"


def _handler(folder: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Reading only."""

        def do_GET(self) -> None:
            if not self.path.endswith(f"/info/refs?service={_SERVICE}"):
                self.send_error(404)
                return
            line = f"# service={_SERVICE}\n"
            head = f"{len(line) + 4:04x}{line}0000".encode()
            self._answer("advertisement", head + self._git("--http-backend-info-refs"))

        def do_POST(self) -> None:
            if not self.path.endswith(f"/{_SERVICE}"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = decompress(body, MAX_WBITS | 16)
            self._answer("result", self._git(body=body))

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a test says what it saw."""

        def _git(self, *options: str, body: bytes = b"") -> bytes:
            command = ["git", "upload-pack", "--stateless-rpc", *options, str(folder)]
            return subprocess.run(command, input=body, capture_output=True, check=True).stdout

        def _answer(self, what: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", f"application/x-{_SERVICE}-{what}")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL under which the repository in the folder is cloned, for the time of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/platform.git"
    finally:
        server.shutdown()
        server.server_close()
