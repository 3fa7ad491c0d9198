"""Sockets that say nothing, or one byte at a time, next to a neighbour's usual requests."""

import asyncio
import contextlib
import time

import httpx

from bench.adversary.finding import Finding
from bench.adversary.rig import VICTIM, Rig

ROUNDS, SECONDS, PER_SECOND = 4, 3.0, 50.0
"""Quiet and attacked in turns, so that whatever else this machine does falls on both."""
MOST_TIMES_QUIET = 2.0
LEAST_MEANT = 0.02
"""Seconds: a p99 below it is quick whatever it is compared with."""


async def attack(rig: Rig, sockets: int) -> Finding:
    """So many sockets are opened and kept, again and again; the neighbour's p99 during that and in quiet."""
    calm: list[float] = []
    attacked: list[float] = []
    refused = refused_then = 0
    for _ in range(ROUNDS):
        refused += await _neighbour(rig, calm)
        held = [asyncio.create_task(_drip(rig, number)) for number in range(sockets)]
        await asyncio.sleep(1.0)
        refused_then += await _neighbour(rig, attacked)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
    quiet, loud = _p99(calm), _p99(attacked)
    finding = Finding(tried=sockets)
    if loud > max(MOST_TIMES_QUIET * quiet, LEAST_MEANT):
        finding.breaches.append(f"the neighbour's p99 went from {quiet * 1e3:.1f} to {loud * 1e3:.1f} ms")
    if refused_then > refused:
        finding.breaches.append(f"{refused_then} of the neighbour's requests were refused")
    finding.figures = {"neighbour_p99_ms_quiet": round(quiet * 1e3, 1), "neighbour_p99_ms": round(loud * 1e3, 1)}
    return finding


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


async def _neighbour(rig: Rig, took: list[float]) -> int:
    """Adds the seconds of each answer to `took`; returns how many were refused."""
    headers = {"Authorization": f"Bearer {rig.token(VICTIM)}"}
    refused, due = 0, time.monotonic()
    base = f"http://127.0.0.1:{rig.product.port}"
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
        end = due + SECONDS
        while due < end:
            began = time.monotonic()
            answer = await client.get("/api/v1/audit/records")
            took.append(time.monotonic() - began)
            refused += answer.status_code != 200
            due += 1.0 / PER_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    return refused


async def _drip(rig: Rig, number: int) -> None:
    """One connection after the other that never finishes a request."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", rig.product.port)
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
