"""One namespace asks as fast as it can; its neighbour goes on getting what it asked for."""

import asyncio
import time

import httpx

from bench.adversary.finding import Finding
from bench.adversary.rig import ATTACKER, VICTIM, Rig

SECONDS, PER_SECOND, LEAST_SHARE = 10.0, 20.0, 0.9


async def attack(rig: Rig, flooders: int) -> Finding:
    """`flooders` connections of one namespace; the share of the neighbour's requests that were answered in a second."""
    base, stop = f"http://127.0.0.1:{rig.product.port}", asyncio.Event()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        headers = {"Authorization": f"Bearer {rig.token(ATTACKER)}"}
        body = {"agent_id": "walker", "context": "x " * 200, "k": 100}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
            while not stop.is_set():
                try:
                    await client.post("/api/v1/memory/retrieve", json=body)
                except httpx.HTTPError:
                    await asyncio.sleep(0.05)
                sent += 1

    tasks = [asyncio.create_task(flood()) for _ in range(flooders)]
    served, offered, due = 0, 0, time.monotonic()
    headers = {"Authorization": f"Bearer {rig.token(VICTIM)}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
        while offered < SECONDS * PER_SECOND:
            began, offered = time.monotonic(), offered + 1
            answer = await client.get("/api/v1/audit/records")
            served += answer.status_code == 200 and time.monotonic() - began < 1.0
            due += 1.0 / PER_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    stop.set()
    await asyncio.gather(*tasks)
    finding = Finding(tried=sent, figures={"neighbour_share": round(served / offered, 3), "requests": sent})
    if served < LEAST_SHARE * offered:
        finding.breaches.append(f"the neighbour was served {served} of {offered} requests in time")
    return finding
