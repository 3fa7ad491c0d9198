"""Hands one message to one receiver. Nothing that answers is trusted: time and size are bounded, redirects refused."""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiosmtplib
import httpx
import orjson

from learnloop_dataplane.notifications import messages
from learnloop_dataplane.notifications.addresses import RefusedAddress, looked_up, resolved
from learnloop_dataplane.notifications.mail_connections import hand_in
from learnloop_dataplane.notifications.outbox import BATCH
from learnloop_dataplane.notifications.receivers import Mail, NotDelivered, Receiver, Receivers

SECONDS = 10.0
SAID = 200
JSON = "application/json"


class Sender:
    """Speaks to receivers of every type."""

    def __init__(self, receivers: Receivers) -> None:
        self._receivers = receivers
        # Receivers that do not answer would use up a number of connections that all share.
        bounds = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._client = httpx.AsyncClient(timeout=SECONDS, trust_env=False, follow_redirects=False, limits=bounds)
        self._threads: dict[str, ThreadPoolExecutor] = {}

    async def close(self) -> None:
        """Ends its connections."""
        await self._client.aclose()
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    def _own(self, receiver: Receiver) -> ThreadPoolExecutor:
        """Threads of this receiver alone: name servers that do not answer hold up to all of them."""
        if receiver.name not in self._threads:
            self._threads[receiver.name] = ThreadPoolExecutor(BATCH, f"tell-{receiver.name}")
        return self._threads[receiver.name]

    async def send(self, receiver: Receiver, notice: Mapping[str, Any]) -> None:
        """One message: `message_id`, `namespace`, `event`, `at` and `payload`.

        Raises:
            NotDelivered: it was not taken, or nobody knows.
        """
        try:
            secret = self._receivers.secret(receiver)
            await self._hand_over(receiver, secret, notice)
        except (
            OSError,
            ValueError,
            RefusedAddress,
            httpx.HTTPError,
            httpx.InvalidURL,
            aiosmtplib.SMTPException,
            TimeoutError,
        ) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:SAID]) from error

    async def _hand_over(self, receiver: Receiver, secret: str, notice: Mapping[str, Any]) -> None:
        identity, namespace, event = notice["message_id"], notice["namespace"], notice["event"]
        payload = notice["payload"]
        link = f"{self._receivers.console}/{namespace}/{notice['name']}".rstrip("/") if self._receivers.console else ""
        said = (namespace, event, payload, link)
        if receiver.email is not None:
            message = messages.mail(receiver.email, identity, *said)
            await self._mail(receiver, receiver.email, secret, message)
        elif receiver.type == "webhook":
            body = orjson.dumps(messages.cloud_event(identity, namespace, event, notice["at"], payload))
            headers = messages.signed(secret, identity, int(time.time()), body)
            await self._post(receiver, receiver.url or "", body, {**headers, "content-type": _CLOUD_EVENT})
        elif receiver.type == "pagerduty":
            body = messages.pagerduty(secret, identity, *said)
            await self._post(receiver, receiver.url or messages.PAGERDUTY, body, {"content-type": JSON})
        else:
            body = (messages.slack if receiver.type == "slack" else messages.teams)(*said)
            await self._post(receiver, receiver.url or secret, body, {"content-type": JSON})

    async def _post(self, receiver: Receiver, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        address, name = await resolved(url, private=receiver.private_addresses, threads=self._own(receiver))
        parts = urlsplit(url)
        host = f"[{address}]" if ":" in address else address
        target = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host).geturl()
        extensions = {"sni_hostname": name} if parts.scheme == "https" else {}
        sent = {**headers, "host": parts.netloc, "user-agent": "learnloop"}
        async with asyncio.timeout(SECONDS):
            request = self._client.build_request("POST", target, content=body, headers=sent, extensions=extensions)
            answer = await self._client.send(request, stream=True)  # its body is never read
            await answer.aclose()
        if answer.status_code >= 300:
            gone, after = answer.status_code == 410, _retry_after(answer.headers.get("retry-after", ""), time.time())
            raise NotDelivered(f"{name} answers with {answer.status_code}", final=gone, after=after)

    async def _mail(self, receiver: Receiver, settings: Mail, password: str, message: EmailMessage) -> None:
        if settings.security == "none" and not receiver.private_addresses:
            said = "mail leaves by TLS only; use security starttls or tls, or set privateAddresses: true"
            raise RefusedAddress(f"smtp://{settings.host}: {said}")
        threads, private = self._own(receiver), receiver.private_addresses
        place = await looked_up(settings.host, settings.port, private=private, threads=threads)
        await hand_in(settings, place.address, password, message)


def _retry_after(said: str, now: float) -> float:
    """Seconds, of a number or a date (RFC 9110, section 10.2.3); 0 where it is neither."""
    if said.isascii() and said.isdecimal() and len(said) < 10:
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


_CLOUD_EVENT = "application/cloudevents+json; charset=utf-8"
