"""Forged outcomes at a policy server: no token, others' tokens, made-up episodes, episodes of other arms, and faults of
the caller. None may count for or against an arm."""

import asyncio
import json
import random
import tempfile
from pathlib import Path

import httpx

from bench.adversary.finding import Finding
from bench.adversary.rig import ATTACKER, VICTIM, Rig
from learnloop_api import names
from learnloop_common.service_accounts import KeySource
from learnloop_serving.callers import Callers
from testing.servers.policy_servers import STABLE, LiveServer, linear_policy, table
from testing.servers.token_issuer import ISSUER

COUNTED = (names.METRIC_EPISODES_OPENED, names.METRIC_REQUEST_ERRORS, names.METRIC_EPISODE_RETURN_GAIN)


async def attack(rig: Rig, requests: int, seed: int) -> Finding:
    """So many requests by a stranger to this server; the server's counts."""
    with tempfile.TemporaryDirectory() as text, rig.cluster.served() as keys:
        server = LiveServer(policy=linear_policy(Path(text))).start()
        try:
            server.route(table((STABLE, "stable", 100, server.url)))
            source = KeySource(keys, f"{text}/token", f"{text}/ca", ISSUER)
            server.arm.callers = Callers(source, frozenset({VICTIM}))
            before = _counted(server)
            finding = await _requests(rig, server, requests, seed)
            if _counted(server) != before:
                finding.breaches.append(f"counted {before} before and {_counted(server)} after")
            return finding
        finally:
            server.stop()


def _counted(server: LiveServer) -> dict[str, float]:
    outcomes = {
        f"ended {outcome}": server.metric(names.METRIC_EPISODES_ENDED, outcome=outcome)
        for outcome in ("success", "failure", "error", "withdrawn")
    }
    return {name: server.metric(name) for name in COUNTED} | outcomes


async def _requests(rig: Rig, server: LiveServer, requests: int, seed: int) -> Finding:
    rng, finding, places = random.Random(seed), Finding(tried=requests), asyncio.Semaphore(8)
    victim = {"authorization": f"Bearer {rig.token(VICTIM)}"}
    strangers = [{}, {"authorization": "Bearer x.y.z"}, {"authorization": f"Bearer {rig.token(ATTACKER)}"}]
    opened = [server.opened() for _ in range(20)]
    ending = {"status": "completed", "episode_return": 1e9, "length": 1, "success": True}
    async with httpx.AsyncClient(base_url=server.url, timeout=30, trust_env=False) as client:

        async def one() -> None:
            async with places:
                if rng.random() < 0.7:  # real episodes, by strangers
                    headers, episode = rng.choice(strangers), rng.choice(opened)
                    path = rng.choice(["/v1/episodes", f"/v1/episodes/{episode}/end", f"/v1/episodes/{episode}/act"])
                else:  # made-up episodes, by a caller that is served
                    forged = rng.choice(opened)[:-4] + rng.choice(["AAAA", "0000", "----"])
                    headers, path = victim, f"/v1/episodes/{rng.choice([forged, 'x', '..'])}/end"
                answer = await client.post(path, content=json.dumps(ending), headers=headers)
                if answer.is_success and answer.json().get("counted") is not False:
                    finding.breaches.append(f"{path}: {answer.status_code} {answer.text[:100]}")

        await asyncio.gather(*(one() for _ in range(requests)))
    return finding
