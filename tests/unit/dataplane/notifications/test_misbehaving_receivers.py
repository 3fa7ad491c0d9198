"""A receiver that misbehaves costs a few seconds, and nothing else: real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from learnloop_dataplane.notifications import sending
from learnloop_dataplane.notifications.receivers import NotDelivered, Receivers
from learnloop_dataplane.notifications.sending import Sender

NOTICE: dict[str, Any] = {
    "message_id": "ns/1",
    "namespace": "ns",
    "event": "model.deployed",
    "at": "2026-01-31T12:00:00Z",
    "name": "walker",
    "payload": {"model_deployment": "walker", "revision": "3f9a", "verdict": "better"},
}
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def says(status: str, *headers: str, body: bytes = b"") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = "\r\n".join((f"HTTP/1.1 {status}", *headers, "", ""))
        writer.write(head.encode() + body)

    return answer


async def a_gigabyte(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x" * 65536)
        await writer.drain()


async def byte_by_byte(writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x-slow: 1\r\n" * 1000:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.05)


@asynccontextmanager
async def sender(tmp_path: Path, answer: Answer) -> AsyncIterator[tuple[Sender, Receivers, list[bytes]]]:
    """A sender whose only receiver answers like this, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            await answer(writer)
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (tmp_path / "key").write_text("a-key")
        given = {"name": "ops", "type": "webhook", "url": f"http://127.0.0.1:{port}/ops", "secret": "key"}
        found = Receivers(json.dumps({"receivers": [given | {"privateAddresses": True}]}), str(tmp_path))
        made = Sender(found)
        yield made, found, asked
        await made.close()


async def test_an_answer_of_a_gigabyte_is_never_read(tmp_path: Path) -> None:
    async with sender(tmp_path, a_gigabyte) as (made, found, asked):
        await asyncio.wait_for(made.send(found.all["ops"], NOTICE), 30)
    assert len(asked) == 1


async def test_an_answer_that_comes_byte_by_byte_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SECONDS", 0.3)
    async with sender(tmp_path, byte_by_byte) as (made, found, _):
        with pytest.raises(NotDelivered):
            await made.send(found.all["ops"], NOTICE)


async def test_nobody_is_followed_to_where_he_sends_us(tmp_path: Path) -> None:
    away = "location: http://169.254.169.254/latest/meta-data"
    async with sender(tmp_path, says("301 Moved", away, "content-length: 0")) as (made, found, asked):
        with pytest.raises(NotDelivered, match="answers with 301") as refused:
            await made.send(found.all["ops"], NOTICE)
    assert (len(asked), refused.value.final) == (1, False)


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [
        ("120", 120, 120),
        (formatdate(4_102_444_800, usegmt=True), 1e8, 1e10),
        (formatdate(0, usegmt=True), 0, 0),
        ("soon", 0, 0),
        ("-5", 0, 0),
        ("9" * 400, 0, 0),
    ],
)
async def test_who_asks_to_be_left_alone_for_a_while_is(tmp_path: Path, said: str, low: float, high: float) -> None:
    answer = says("429 Too Many Requests", f"retry-after: {said}", "content-length: 0")
    async with sender(tmp_path, answer) as (made, found, _):
        with pytest.raises(NotDelivered, match="answers with 429") as refused:
            await made.send(found.all["ops"], NOTICE)
    assert low <= refused.value.after <= high


async def test_an_address_that_is_none_is_a_message_not_taken(tmp_path: Path) -> None:
    (tmp_path / "slack").write_text("https://127.0.0.1/a\nhttps://127.0.0.1/\x01b")
    given = {"name": "chat", "type": "slack", "secret": "slack", "privateAddresses": True}
    found = Receivers(json.dumps({"receivers": [given]}), str(tmp_path))
    with pytest.raises(NotDelivered):
        await Sender(found).send(found.all["chat"], NOTICE)
