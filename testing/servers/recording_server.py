"""A data plane that remembers what was posted to it and answers as a test says."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class DataPlane(ThreadingHTTPServer):
    """The two routes the SDK posts to, with the answers a test sets."""

    allow_reuse_address = True
    request_queue_size = 128  # a batch comes on connections of its own: the kernel turns away what does not fit

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: what it shows callers, as `localhost`; None: it speaks plain HTTP."""
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
            self.url = f"https://localhost:{self.server_address[1]}"
        self.posts: list[tuple[str, bytes, dict[str, str]]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def bodies(self, path: str = "/api/v1/trajectories") -> list[bytes]:
        return [body for where, body, _ in self.posts if where == path]


class Handler(BaseHTTPRequestHandler):
    server: DataPlane

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:  # its sender was killed
            return
        self.server.posts.append((self.path, body, {key.lower(): value for key, value in self.headers.items()}))
        status, answer = self.server.answers.get(self.path, (202, b"{}"))
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...
