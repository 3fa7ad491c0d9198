"""Mail servers at an address that was looked up before, with the certificate of the server's name."""

import asyncio
import socket
import ssl
from email.message import EmailMessage

import aiosmtplib

from learnloop_dataplane.notifications.receivers import Mail

WHOLE_SECONDS = 15.0
"""For one message, all answers together: less than the outbox waits, so none is handed over after it was given up."""


async def hand_in(settings: Mail, address: str, password: str, message: EmailMessage) -> None:
    """Hands a message to the server at `address` as `settings.security` says.

    Args:
        address: of `settings.host`, looked up and allowed. Nothing is looked up again.

    Raises:
        OSError: no connection, no answer in time, or a certificate of another name.
        aiosmtplib.SMTPException: the server does not do what it is asked for.
    """
    async with asyncio.timeout(WHOLE_SECONDS):
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, (address, settings.port))
        except BaseException:
            connection.close()
            raise
        server = aiosmtplib.SMTP(
            hostname=settings.host,
            sock=connection,
            use_tls=settings.security == "tls",
            start_tls=settings.security == "starttls",
            tls_context=ssl.create_default_context(),
            username=settings.username or None,
            password=password if settings.username else None,
        )
        try:
            await server.connect()
            await server.send_message(message)
        finally:
            server.close()
