"""Connections to mail servers at an address that was looked up before, with the certificate of the server's name."""

import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any

from learnloop_dataplane.notifications.receivers import Mail

WHOLE_SECONDS = 15.0
"""For one message, all answers together: less than the outbox waits, so none is handed over after it was given up."""


class _Deadline:
    """Cuts a connection off after `WHOLE_SECONDS`. smtplib bounds the time of each read, and a server that says a byte
    now and then would hold its thread for ever."""

    def __init__(self, connection: socket.socket) -> None:
        self._own = connection.dup()  # TLS takes the other descriptor for itself
        self._timer = threading.Timer(WHOLE_SECONDS, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """The connection is closed."""
        self._timer.cancel()
        self._own.close()

    def _cut(self) -> None:
        with suppress(OSError):
            self._own.shutdown(socket.SHUT_RDWR)
        self._own.close()


class _Pinned(smtplib.SMTP):
    """Connects to one address, and takes its host's name for TLS alone. Nothing is looked up again."""

    _deadline: _Deadline | None = None

    def __init__(self, address: str, host: str, port: int, **options: Any) -> None:
        self._address = address
        super().__init__(host, port, **options)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """smtplib's own way to say where a connection goes; `host` stays what a certificate is compared with."""
        made = socket.create_connection((self._address, port), timeout)
        self._deadline = _Deadline(made)
        return made

    def close(self) -> None:
        """Ends the connection, and the watch over it."""
        super().close()
        if self._deadline is not None:
            self._deadline.end()


class _PinnedTls(smtplib.SMTP_SSL, _Pinned):
    """The same, by TLS from the first byte: what `_Pinned` connects, SMTP_SSL wraps."""

    def __init__(self, address: str, host: str, port: int, **options: Any) -> None:
        self._address = address
        smtplib.SMTP_SSL.__init__(self, host, port, **options)


def connected(settings: Mail, address: str, seconds: float) -> smtplib.SMTP:
    """A connection to `address` as `settings.security` says.

    Args:
        address: of `settings.host`, looked up and allowed.
        seconds: for each answer.

    Raises:
        OSError: nobody answers, too slowly, or with a certificate of another name.
        smtplib.SMTPException: the server does not do what it is asked for.
    """
    context = ssl.create_default_context()
    if settings.security == "tls":
        return _PinnedTls(address, settings.host, settings.port, timeout=seconds, context=context)
    server = _Pinned(address, settings.host, settings.port, timeout=seconds)
    if settings.security == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server
