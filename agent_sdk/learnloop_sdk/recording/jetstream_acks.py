"""Many JetStream messages at once, one wait for all of their acknowledgements.

nats-py's own `js.publish` waits for each message by itself: a task, two futures and a timer each, 60 µs of the agent's
processor time for a trajectory, against 13 µs here (batches of 64, 4.6 kB).
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from learnloop_sdk.errors import SinkDown

Message = tuple[bytes, dict[str, str]]  # body and headers


class Silence(SinkDown):
    """Nobody answered: whether the message is in a stream is not known."""


class Acknowledgements:
    """Publishes on one connection; one batch at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._number = 0
        self._waiting: dict[str, int] = {}
        self._answers: list[SinkDown | None] = []
        self._all: asyncio.Future[None] | None = None

    async def listen(self) -> "Acknowledgements":
        """Subscribes to the answers; to be awaited first."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
        return self

    async def publish(
        self, subject: str, messages: Sequence[Message], seconds: float, ended: "asyncio.Future[str]"
    ) -> list[SinkDown | None]:
        """None for each message a stream has, else why it has not.

        Args:
            seconds: to wait for the last answer.
            ended: gets a result when waiting is no use any more.

        Raises:
            nats.errors.Error, OSError: the connection broke; nothing is known.
        """
        if not messages:
            return []
        self._number += 1
        self._answers = [Silence("NATS: no acknowledgement") for _ in messages]
        self._waiting = {f"{self._number}-{index}": index for index in range(len(messages))}
        self._all = asyncio.get_running_loop().create_future()
        for token, (body, headers) in zip(list(self._waiting), messages, strict=True):
            await self._client.publish(subject, body, reply=f"{self._inbox}.{token}", headers=headers)
        either: set[asyncio.Future[Any]] = {self._all, ended}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._waiting = {}  # later answers are nobody's
        return self._answers

    async def _answered(self, message: Msg) -> None:
        index = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if index is None:
            return
        self._answers[index] = _trouble(message.data)
        if not self._waiting and self._all is not None and not self._all.done():
            self._all.set_result(None)


def _trouble(data: bytes) -> SinkDown | None:
    """What a PubAck complains of. No data: nobody listens on the subject."""
    if not data:
        return SinkDown("NATS: acknowledged by no stream")
    try:
        answer = json.loads(data)
    except ValueError:
        return SinkDown("NATS: not an acknowledgement")
    if "error" in answer:
        return SinkDown(f"NATS: {answer['error'].get('description', 'refused')}")
    return None if answer.get("stream") else SinkDown("NATS: acknowledged by no stream")
