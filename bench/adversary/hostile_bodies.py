"""Malformed, deep, wide and numerous JSON at every door: answered or refused, in bounded memory."""

import asyncio
import json
import random
from collections import Counter

import httpx

from bench.adversary.finding import Finding
from bench.adversary.rig import ATTACKER, Rig

DOORS = (
    "/api/v1/trajectories",
    "/api/v1/memory/store",
    "/api/v1/memory/retrieve",
    "/api/v1/rewards/calculate",
    "/api/v1/rewards/feedback",
    "/api/v1/memory/import",
    "/api/v1/memory/store/batch",
    "/api/v1/erasure",
)
BIG = 7 * 2**20
BIG_EVERY = 250
AT_ONCE = 8


def body(rng: random.Random, big: bool) -> bytes:
    """A body that no client should send; `big`: as much of it as a body may hold."""
    size = BIG if big else rng.randrange(1, 4000)
    piece = rng.randrange(9)
    if piece == 0:
        return b"[" * size
    if piece == 1:
        return b'{"a":' * (size // 5)
    if piece == 2:
        return b"[" + b"1e308," * (size // 6) + b"1]"
    if piece == 3:
        return b'{"steps":[' + b"0.1234567," * (size // 10) + b"1]}"
    if piece == 4:
        return b"{" + b",".join(b'"k%d":%d' % (index, index) for index in range(size // 14)) + b"}"
    if piece == 5:
        return json.dumps({"content": "\\u0000" * (size // 6), "agent_id": "walker"}).encode()
    if piece == 6:
        return rng.randbytes(size)
    if piece == 7:
        return b'"' + b"\\ud800" * (size // 6) + b'"'
    return b'{"agent_id":"walker","steps":[' + b'{"reward":1},' * (size // 13) + b"{}]}"


async def attack(rig: Rig, bodies: int, seed: int) -> Finding:
    """So many bodies; memory at its peak over what it was when idle, answers by status, whether probes go on."""
    rng, finding, answers = random.Random(seed), Finding(), Counter[int]()
    base = f"http://127.0.0.1:{rig.product.port}"
    headers = {"Authorization": f"Bearer {rig.token(ATTACKER)}", "content-type": "application/json"}
    places, peak = asyncio.Semaphore(AT_ONCE), 0.0
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=120, trust_env=False) as client:
        for door in DOORS:  # the load at the first request does not count as the attack's
            await client.post(door, json={})
        idle = rig.product.rss_mib()

        async def send(number: int) -> None:
            async with places:
                door, sent = rng.choice(DOORS), body(rng, number % BIG_EVERY == 0)
                try:
                    answer = await client.post(door, content=sent)
                except httpx.HTTPError as error:
                    answers[0] += 1
                    if number % BIG_EVERY:
                        finding.breaches.append(f"{door}: no answer to {len(sent)} bytes: {error!r}")
                    return
                answers[answer.status_code] += 1
                if answer.status_code >= 500 and answer.status_code != 503:
                    finding.breaches.append(f"{door}: {answer.status_code} to {sent[:60]!r}")

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, rig.product.rss_mib())
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        for first in range(0, bodies, 1000):
            await asyncio.gather(*(send(number) for number in range(first, min(bodies, first + 1000))))
        watching.cancel()
        if (await client.get("/healthz")).status_code != 200:
            finding.breaches.append("/healthz fails after the bodies")
    finding.tried = bodies
    finding.figures = {
        "rss_idle_mib": round(idle, 1),
        "rss_peak_over_idle_mib": round(peak - idle, 1),
        "answers": {str(status): count for status, count in sorted(answers.items())},
    }
    return finding
