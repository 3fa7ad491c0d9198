"""Mail goes to the address that was looked up, and the certificate is of the name that was meant."""

import contextlib
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import aiosmtplib
import pytest

from learnloop_dataplane.notifications import mail_connections
from learnloop_dataplane.notifications.mail_connections import hand_in
from learnloop_dataplane.notifications.receivers import Mail
from testing.certificates import LIFE, Folder, make_authority
from testing.servers.smtp_server import Smtp

NOWHERE = "mail.invalid"
"""RFC 2606: no resolver knows it."""


def settings(port: int, security: str) -> Mail:
    given = {"host": NOWHERE, "port": port, "security": security, "sender": "a@example.org", "to": ["b@example.org"]}
    return Mail.model_validate(given)


def message() -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "a@example.org", "b@example.org", "told"
    mail.set_content("text")
    return mail


async def test_nothing_is_looked_up_again() -> None:
    server = Smtp()
    await hand_in(settings(server.port, "none"), "127.0.0.1", "", message())
    assert "Subject: told" in server.mails[0]


class _ByteByByte(socketserver.StreamRequestHandler):
    """Greets, but takes its time for it: each read of a client gets something soon."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            for byte in b"220-" + b"x" * 200 + b"\r\n220 test\r\n":
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
            self.rfile.readline()


async def test_a_server_that_says_a_byte_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_connections, "WHOLE_SECONDS", 0.2)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _ByteByByte) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(TimeoutError):
            await hand_in(settings(int(server.server_address[1]), "none"), "127.0.0.1", "", message())
        server.shutdown()


class _Greeting(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(b"220 test\r\n")
            while line := self.rfile.readline():
                self.wfile.write(b"354 go on\r\n" if line.startswith(b"DATA") else b"250 yes\r\n")
                while line.startswith(b"DATA") and self.rfile.readline() != b".\r\n":
                    pass
                self.wfile.write(b"250 taken\r\n" * line.startswith(b"DATA"))


@contextlib.contextmanager
def by_tls(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with a certificate of `name`, by an authority that this process trusts."""
    authority = make_authority("test", datetime.now(UTC), LIFE)
    files = Folder(folder).trust(authority).show(authority, name)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.bundle))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Greeting) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


async def test_the_certificate_is_compared_with_the_name_and_not_with_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with by_tls(tmp_path, NOWHERE, monkeypatch) as port:
        await hand_in(settings(port, "tls"), "127.0.0.1", "", message())
    another = by_tls(tmp_path, "another.invalid", monkeypatch)
    with another as port, pytest.raises(aiosmtplib.SMTPException, match=NOWHERE):
        await hand_in(settings(port, "tls"), "127.0.0.1", "", message())
