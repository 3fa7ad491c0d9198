"""A receiver of notifications as a process: webhooks by HTTP, mails by SMTP, each written to disk before it is taken.

    python -m bench.watch.notified_process FILE HTTP_PORT SMTP_PORT

A line of FILE is one message: `webhook` or `mail`, its id, and the training run that it is about. It may be killed at
any time.
"""

import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from testing.servers.smtp_server import Smtp

_ID = re.compile(r"^Message-ID: <(\S+)>$", re.MULTILINE | re.IGNORECASE)
_SUBJECT = re.compile(r"^Subject: \[learnloop \S+\] (\S+) ", re.MULTILINE)


class Kept:
    """A file to which lines are added, each on disk before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._file, self._lock = path.open("ab"), threading.Lock()

    def add(self, line: str) -> None:
        """Writes one line."""
        with self._lock:
            self._file.write(f"{line}\n".encode())
            self._file.flush()
            os.fsync(self._file.fileno())


class _Mails(list[str]):
    """What the SMTP server appends to before it says that it has taken a mail."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept

    def append(self, mail: str) -> None:
        identity, subject = _ID.search(mail), _SUBJECT.search(mail)
        self._kept.add(f"mail {identity[1] if identity else '?'} {subject[1] if subject else '?'}")


def main(path: Path, http_port: int, smtp_port: int) -> None:
    """Serves until it is killed."""
    kept = Kept(path)

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["content-length"])))
            kept.add(f"webhook {self.headers['webhook-id']} {event['subject']}")
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    Smtp(smtp_port).mails = _Mails(kept)
    server = ThreadingHTTPServer(("127.0.0.1", http_port), Webhook)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
