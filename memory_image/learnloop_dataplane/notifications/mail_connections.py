"""Connections to mail servers at an address that was looked up before, with the certificate of the server's name."""

import smtplib
import socket
import ssl
from typing import Any

from learnloop_dataplane.notifications.receivers import Mail


class _Pinned(smtplib.SMTP):
    """Connects to one address, and takes its host's name for TLS alone. Nothing is looked up again."""

    def __init__(self, address: str, host: str, port: int, **options: Any) -> None:
        self._address = address
        super().__init__(host, port, **options)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """smtplib's own way to say where a connection goes; `host` stays what a certificate is compared with."""
        return socket.create_connection((self._address, port), timeout)


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
        OSError: nobody answers, or with a certificate of another name.
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
