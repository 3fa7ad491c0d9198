"""ClickHouse's engine behind ClickHouse's HTTP interface: `python clickhouse_http.py PORT DIRECTORY USER PASSWORD`.

The engine is chdb, which is ClickHouse as a library; it brings no server. This one speaks as much of
https://clickhouse.com/docs/interfaces/http as clients use: the statement in `query` or in the body, data of an INSERT
behind it, `param_<name>` in the address or as form fields, settings as any other parameter, Basic authentication,
compressed bodies, errors as text with X-ClickHouse-Exception-Code. Each request has a session of its own.
"""

import base64
import email.parser
import email.policy
import gzip
import hmac
import re
import sys
import tempfile
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb
import lz4.frame

# What the HTTP interface consumes itself; everything else in the address is a setting of the engine.
OF_THE_INTERFACE = {
    "query",
    "database",
    "buffer_size",
    "session_id",
    "session_timeout",
    "session_check",
    "query_id",
    "quota_key",
    "compress",
    "decompress",
    "wait_end_of_query",
    "client_protocol_version",
    "role",
    "send_progress_in_http_headers",
    "http_headers_progress_interval_ms",
    "enable_http_compression",
    "cancel_http_readonly_queries_on_client_close",
}
INFLATE = {"lz4": lz4.frame.decompress, "gzip": gzip.decompress, "deflate": zlib.decompress}
_INSERT = re.compile(rb"\s*(INSERT\s+INTO\s+[^\n]*?)\s+FORMAT\s+(\w+)[ \t]*(?:\n|$)", re.IGNORECASE)
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CODE = re.compile(r"Code: (\d+)\.")


@dataclass
class Statement:
    """The statement of one request."""

    text: bytes
    parameters: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    database: str = "default"


def quoted(value: str) -> str:
    """A string literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def statement_of(address: str, body: bytes, content_type: str) -> Statement:
    """Reads a request.

    Raises:
        ValueError: a setting whose name is none.
    """
    given = dict(parse_qsl(urlsplit(address).query, keep_blank_values=True))
    if content_type.startswith("multipart/form-data"):
        head = f"content-type: {content_type}\r\n\r\n".encode()
        form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        for part in form.iter_parts():
            name = part.get_param("name", header="content-disposition")
            given[str(name)] = bytes(part.get_payload(decode=True)).decode()
        body = b""
    start = given.get("query", "").encode()
    result = Statement(start + b"\n" + body if start and body else start or body)
    result.database = given.get("database") or result.database
    for name, value in given.items():
        if name.startswith("param_"):
            result.parameters[name.removeprefix("param_")] = value
        elif name not in OF_THE_INTERFACE:
            if not _NAME.fullmatch(name):
                raise ValueError(f"Code: 115. DB::Exception: Unknown setting {name!r}. (UNKNOWN_SETTING)")
            result.settings[name] = value
    return result


class Interface(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def do_GET(self) -> None:
        """`/ping`, and statements without a body."""
        if urlsplit(self.path).path == "/ping":
            self._answer(200, b"Ok.\n")
        else:
            self.do_POST()

    def do_POST(self) -> None:
        """One statement."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0)) if not self._chunked() else self._chunks()
        if not hmac.compare_digest(self.headers.get("authorization", "").encode(), self.server.expected):
            text = "Code: 516. DB::Exception: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)"
            return self._answer(403, text.encode(), {"X-ClickHouse-Exception-Code": "516"})
        try:
            if encoding := self.headers.get("content-encoding"):
                body = _inflated(body, encoding)
            statement = statement_of(self.path, body, self.headers.get("content-type", ""))
            answer, form = self.server.run(statement)
        except (chdb.ChdbError, RuntimeError, ValueError) as error:
            code = match[1] if (match := _CODE.search(str(error))) else "1002"
            return self._answer(500, str(error).encode(), {"X-ClickHouse-Exception-Code": code})
        self._answer(200, answer, {"X-ClickHouse-Format": form} if form else {})

    def _chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")

    def _chunks(self) -> bytes:
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "X-ClickHouse-Timezone": "UTC",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests read other things."""


def _inflated(body: bytes, encoding: str) -> bytes:
    if encoding not in INFLATE:
        raise ValueError(f"Code: 48. DB::Exception: Content-Encoding {encoding}: one of {', '.join(INFLATE)}")
    return bytes(INFLATE[encoding](body))


class Server(ThreadingHTTPServer):
    """The engine of one directory, behind a port of loopback."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, directory: str, user: str, password: str) -> None:
        self.expected = b"Basic " + base64.b64encode(f"{user}:{password}".encode())
        self._directory = directory
        self._engine = chdb.connect(directory)  # kept open: the engine lives as long as one handle does
        super().__init__(("127.0.0.1", port), Interface)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is not reported; any other error is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def run(self, statement: Statement) -> tuple[bytes, str]:
        """The answer's bytes and their format; "" when the statement has no result.

        Raises:
            chdb.ChdbError: the engine refuses; its message is ClickHouse's.
        """
        session = chdb.connect(self._directory)
        try:
            for name, value in statement.settings.items():
                session.query(f"SET {name} = {quoted(value)}", "TabSeparated")
            if statement.database != "default":
                session.query(f"USE `{statement.database.replace('`', '')}`", "TabSeparated")
            if insert := _INSERT.match(statement.text):
                return self._insert(session, insert, statement.text[insert.end() :])
            text = statement.text.decode()
            if form := _FORMAT.search(text):
                answer = session.query(text, form[1], params=statement.parameters).bytes()
                return bytes(answer or b""), form[1]
            named = session.query(text, "TabSeparatedWithNames", params=statement.parameters).bytes() or b""
            return bytes(named).partition(b"\n")[2], "TabSeparated" if named else ""
        finally:
            session.close()

    def _insert(self, session: Any, insert: re.Match[bytes], data: bytes) -> tuple[bytes, str]:
        # The library takes data from a file and not behind the statement.
        with tempfile.NamedTemporaryFile(suffix=".data") as file:
            file.write(data)
            file.flush()
            source = f"FROM INFILE {quoted(file.name)} FORMAT {insert[2].decode()}"
            session.query(f"{insert[1].decode()} {source}", "TabSeparated")
        return b"", ""


if __name__ == "__main__":
    Server(int(sys.argv[1]), *sys.argv[2:5]).serve_forever()
