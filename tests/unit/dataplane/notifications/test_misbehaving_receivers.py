"""A receiver that misbehaves costs a few seconds, and nothing else: real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from learnloop_dataplane.notifications import webhook_outbox
from learnloop_dataplane.notifications.webhook_outbox import NotDelivered, Sender, Webhook, cloud_event

DEPLOYED = {"model_deployment": "walker", "revision": "3f9a", "verdict": "better"}
EVENT = cloud_event("ns/1", "ns", "model.deployed", "2026-01-31T12:00:00Z", DEPLOYED)
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
async def sender(tmp_path: Path, answer: Answer) -> AsyncIterator[tuple[Sender, list[bytes]]]:
    """A sender whose receiver answers like this, and the requests that it got."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            await answer(writer)
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (tmp_path / "key").write_text("a-key")
        setting = Webhook(url=f"http://127.0.0.1:{port}/ops")
        made = Sender(setting, str(tmp_path / "key"))
        yield made, requests
        await made.close()


async def test_an_answer_of_a_gigabyte_is_never_read(tmp_path: Path) -> None:
    async with sender(tmp_path, a_gigabyte) as (made, requests):
        await asyncio.wait_for(made.send(EVENT), 30)
    assert len(requests) == 1


async def test_an_answer_that_comes_byte_by_byte_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_outbox, "SECONDS", 0.3)
    async with sender(tmp_path, byte_by_byte) as (made, _):
        with pytest.raises(NotDelivered):
            await made.send(EVENT)


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    away = "location: http://169.254.169.254/latest/meta-data"
    async with sender(tmp_path, says("301 Moved", away, "content-length: 0")) as (made, requests):
        with pytest.raises(NotDelivered, match="answers with 301"):
            await made.send(EVENT)
    assert len(requests) == 1
