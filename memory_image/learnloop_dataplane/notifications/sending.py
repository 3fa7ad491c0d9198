"""One POST to the webhook, signed.

Delivery is safe against a receiver that misbehaves: a deadline for all of it, no redirects, and the answer's body is
not read.
"""

import asyncio
import base64
import hmac
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.notifications.webhook import SECONDS, NotDelivered, Webhook

MOST_KEY_BYTES = 8192
CODED = "whsec_"
"""Before a key in Base64, by the Standard Webhooks specification."""


class Sender:
    """Posts messages to the webhook, signed with the key in a file; the file is read for each message."""

    def __init__(self, webhook: Webhook, key_file: str) -> None:
        self._webhook, self._key_file = webhook, Path(key_file)
        self._client = httpx.AsyncClient(timeout=SECONDS, trust_env=False, follow_redirects=False)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def send(self, event: Mapping[str, Any]) -> None:
        """Posts one CloudEvent.

        Raises:
            NotDelivered: the receiver does not answer in time, or its status is not 2xx.
        """
        try:
            async with asyncio.timeout(SECONDS):
                with self._key_file.open("rb") as file:
                    key = file.read(MOST_KEY_BYTES).decode().strip()
                body = orjson.dumps(event)
                headers = signed(key, event["id"], int(time.time()), body)
                headers |= {"content-type": "application/cloudevents+json; charset=utf-8", "user-agent": "learnloop"}
                async with self._client.stream("POST", self._webhook.url, content=body, headers=headers) as answer:
                    status = answer.status_code
        except TimeoutError:
            raise NotDelivered(f"no answer after {SECONDS:g} s") from None
        except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:200]) from error
        if status >= 300:
            raise NotDelivered(f"the receiver answers with {status}")


def signed(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Headers of the Standard Webhooks specification: HMAC-SHA256 over id, time and body, by each key of `secret`.

    Raises:
        ValueError: a key is missing or invalid; the message does not contain it.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    marks = [hmac.digest(_key(line), content, "sha256") for line in KeyLines.parse(secret).values]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mark).decode()}" for mark in marks),
    }


def _key(line: str) -> bytes:
    if not line.startswith(CODED):
        return line.encode()
    try:
        key = base64.b64decode(line.removeprefix(CODED), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError(f"the secret's {CODED} is not followed by a key in Base64: make a new one")
    return key
