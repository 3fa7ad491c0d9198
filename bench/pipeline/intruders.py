"""The house, and those who try its doors by HTTP."""

import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt

from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.config import Config
from learnloop_dataplane.postgres.database import Database
from testing.servers.token_issuer import ISSUER, Cluster

MARK = "CANARY-7f3a"
VICTIM = "blue"
ATTACKERS = ("red", "blue-2")
METACHARACTERS = (
    "' OR 1=1 --",
    '"; DROP TABLE agents; --',
    "%",
    "_",
    "\\",
    "${jndi}",
    "../../blue",
    "*",
    "blue/%2e",
    "$1",
)


@dataclass
class House:
    """The service, a client of it, and who signs."""

    db: Database
    client: httpx.AsyncClient
    cluster: Cluster


@asynccontextmanager
async def running(dsn: str, directory: Path) -> AsyncIterator[House]:
    """The data plane in this process, with authentication on."""
    cluster = Cluster()
    with cluster.served() as url:
        values = {"dsn": dsn, "artifacts": f"file://{directory / 'artifacts'}", "jwks_url": url, "sweep_seconds": 0.2}
        # Each administers its own namespace: no attacker is to be stopped by a missing Role before the tenants' wall.
        values |= {"admins": " ".join(f"system:serviceaccount:{name}:default" for name in (VICTIM, *ATTACKERS))}
        values |= {"run_writers": "namespace"}  # and reports runs: no API server stands here that knows of pods
        app = create_app(Config.model_validate({**values, "issuer": ISSUER, "pool_size": 8}))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://data", trust_env=False) as client,
        ):
            db: Database = app.state.data_plane.shared.db
            await db.ready.wait()
            yield House(db, client, cluster)


async def attack(
    house: House, requests: int, ids: list[str], seed: int, tell: Callable[[int], None] = lambda _: None
) -> Counter[str]:
    """So many requests by who may not see the victim's rows; counts answers with the mark in them.

    Args:
        tell: called with how many more are done.
    """
    rng, counted, cluster = random.Random(seed), Counter[str](), house.cluster
    later = int(time.time()) + 36_000  # the attack may take long
    honest = [cluster.token(name, exp=later) for name in ATTACKERS]
    claim: dict[str, Any] = {"kubernetes.io": {"namespace": VICTIM}}
    bad = [
        Cluster().token(VICTIM, exp=later),
        cluster.token(VICTIM, exp=1),
        cluster.token(VICTIM, aud=["other"], exp=later),
        cluster.token("red", sub=f"system:serviceaccount:{VICTIM}:default", exp=later),
        cluster.token("red", exp=later, **claim),
        jwt.encode(claim, "k" * 32, algorithm="HS256", headers={"kid": "k1"}),
        "nonsense",
    ]
    for _ in range(requests):
        method, path, body = _request(rng, [*ids, *METACHARACTERS])
        trusted = rng.random() < 0.7
        headers = {"Authorization": f"Bearer {rng.choice(honest if trusted else bad)}"}
        if rng.random() < 0.3:
            headers["x-learnloop-namespace"] = rng.choice([VICTIM, "BLUE", "*", f"red,{VICTIM}"])
        query = {"namespace": VICTIM} if rng.random() < 0.3 else {}
        answer = await house.client.request(method, path, headers=headers, params=query, json=body)
        request = json.dumps([path, body])
        leaked = MARK.encode() in answer.content and MARK not in request
        let_in = not trusted and answer.is_success
        counted += Counter(requests=1, answered=int(answer.is_success), leaked=int(leaked or let_in))
        if leaked or let_in:
            print(f"leaked: {method} {path} {body} {headers} {query}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code >= 500:
            raise SystemExit(f"{method} {path} {body}: {answer.status_code} {answer.text}")
        tell(1)
    return counted


def _request(rng: random.Random, values: list[str]) -> tuple[str, str, Any]:
    value, agent = httpx.QueryParams({"v": rng.choice(values)})["v"], rng.choice(["walker", rng.choice(values)])
    quoted = str(httpx.URL("http://x", params={"v": value}).query.decode()[2:]).replace("+", "%20")
    reads = (
        f"/api/v1/memory/entries?agent_id={agent}&ended=true",
        f"/api/v1/memory/export?agent_id={agent}",
        f"/api/v1/rewards/history?agent_id={agent}",
        f"/api/v1/rewards/credits/{quoted}",
        f"/api/v1/rewards/policies/{quoted}/revisions/r1/signals",
        f"/api/v1/agents/{quoted}/stats",
        f"/api/v1/experience/trajectories?agent={agent}",
        f"/api/v1/experience/observations?agent={agent}",
        f"/api/v1/training/runs/{quoted}",
        f"/api/v1/models/{quoted}/deployed",
        f"/api/v1/artifacts/{quoted}",
        f"/api/v1/audit/records?subject={quoted}",
        "/api/v1/audit/records",
    )
    if rng.random() < 0.6:
        return "GET", rng.choice(reads), None
    writes: tuple[tuple[str, str, Any], ...] = (
        ("POST", "/api/v1/memory/retrieve", {"agent_id": agent, "context": value, "k": 100}),
        ("POST", "/api/v1/memory/delete", {"agent_id": agent, "ids": [value]}),
        ("POST", "/api/v1/memory/forget", {"agent_id": agent, "budget": 0}),
        ("POST", "/api/v1/memory/origins", {"origin": f"{value}*", "action": "rollback"}),
        ("POST", "/api/v1/memory/feedback", {"retrieval_id": value, "reward": 1.0}),
        ("POST", "/api/v1/rewards/calculate", {"agent_id": agent, "result": {}}),
        ("POST", "/api/v1/erasure", {"user_id": value}),
        ("POST", "/api/v1/erasure", {"agent_id": agent}),
        ("DELETE", f"/api/v1/training/runs/{quoted}", None),
        ("DELETE", f"/api/v1/agents/{quoted}", None),
        ("PUT", f"/api/v1/users/{quoted}/opt-out", None),
    )
    return rng.choice(writes)
