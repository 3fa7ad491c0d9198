"""Load over plain sockets: closed loop (as fast as it answers) and open loop (on time, whether it answers or not)."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

EARLY_SECONDS = 0.002  # before a request is due its sender stays awake


@dataclass(frozen=True)
class Timing:
    """Latencies of one run in milliseconds, and answers a second. Open loop: from when the request was due.

    Attributes:
        count, rps: of answers; a refusal with 429 is none.
        late_p99: of the client itself, open loop: milliseconds between when a request was due and when it was sent.
        refused: how often it was 429. A client then waits as long as Retry-After says and sends the request again.
        p99_with_retries: from the first time a request was sent.
        p99_served_or_refused: of every attempt, whether it was answered or refused.
    """

    count: int
    rps: float
    p50: float
    p90: float
    p99: float
    errors: int
    late_p99: float = 0.0
    refused: int = 0
    p99_with_retries: float = 0.0
    p99_served_or_refused: float = 0.0


class Connection:
    """One kept-alive HTTP/1.1 connection: a client as cheap as it can be, since it runs on the same cores."""

    retry_after = 1.0

    async def open(self, port: int, tls: ssl.SSLContext | None = None) -> "Connection":
        """Connects; with `tls` to a server with a certificate for localhost."""
        name = "localhost" if tls else None
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
        return self

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        status = int(head[9:12])
        if status == 429:
            self.retry_after = float(head.lower().split(b"retry-after: ", 1)[1].split(b"\r\n", 1)[0])
        return status, await self._reader.readexactly(length)

    def close(self) -> None:
        """Hangs up."""
        self._writer.close()


def post(path: str, body: bytes) -> bytes:
    """A POST as bytes."""
    head = f"POST {path} HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def closed(
    port: int, requests: Sequence[bytes], clients: int, seconds: float, tls: ssl.SSLContext | None = None
) -> Timing:
    """`clients` connections, each sending its next request when it has the answer to the last."""
    took: list[float] = []
    whole: list[float] = []
    attempts: list[float] = []
    errors = refused = 0
    started = time.perf_counter()

    async def client(number: int) -> None:
        nonlocal errors, refused
        connection = await Connection().open(port, tls)
        place = number
        first = 0.0
        while time.perf_counter() - started < seconds and place < len(requests) + number:
            before = time.perf_counter()
            first = first or before
            status, _ = await connection.send(requests[place % len(requests)])
            after = time.perf_counter()
            attempts.append(after - before)
            if status == 429:
                refused += 1
                await asyncio.sleep(connection.retry_after)
                continue
            took.append(after - before)
            whole.append(after - first)
            errors += status >= 300
            place += clients
            first = 0.0
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    timing = _timing(took, time.perf_counter() - started, errors)
    retried, each = (round(float(np.percentile(times, 99)) * 1000, 3) for times in (whole, attempts))
    return replace(timing, refused=refused, p99_with_retries=retried, p99_served_or_refused=each)


async def opened(
    port: int, requests: Sequence[bytes], rps: float, seconds: float, tls: ssl.SSLContext | None = None
) -> Timing:
    """A request each 1/rps seconds; late answers do not hold the next one back (no coordinated omission)."""
    idle = [await Connection().open(port, tls) for _ in range(4)]
    took: list[float] = []
    late: list[float] = []
    errors = 0
    started = time.perf_counter()

    async def one(due: float, request: bytes) -> None:
        nonlocal errors
        connection = idle.pop() if idle else await Connection().open(port, tls)
        late.append(time.perf_counter() - due)
        status, _ = await connection.send(request)  # a refusal is an error here: nothing may be refused at this rate
        took.append(time.perf_counter() - due)
        errors += status >= 300
        idle.append(connection)

    tasks = []
    for number in range(int(rps * seconds)):
        due = started + number / rps
        await _until(due)
        tasks.append(asyncio.create_task(one(due, requests[number % len(requests)])))
    await asyncio.gather(*tasks)
    timing = _timing(took, time.perf_counter() - started, errors)
    for connection in idle:
        connection.close()
    return replace(timing, late_p99=round(float(np.percentile(late, 99)) * 1000, 3))


async def _until(due: float) -> None:
    """Exactly then, as long as this process has a processor: libuv's timers are of whole milliseconds, and a request
    that is sent half of one early or late would be counted so. Answers are taken meanwhile."""
    if (wait := due - time.perf_counter() - EARLY_SECONDS) > 0:
        await asyncio.sleep(wait)
    while time.perf_counter() < due:  # noqa: ASYNC110 - no event marks a point in time
        await asyncio.sleep(0)


def _timing(took: list[float], seconds: float, errors: int) -> Timing:
    p50, p90, p99 = np.percentile(np.array(took) * 1000, [50, 90, 99])
    return Timing(len(took), len(took) / seconds, round(p50, 3), round(p90, 3), round(p99, 3), errors)
