"""The house, its victim, and those who try its doors by HTTP."""

import http.server
import json
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from learnloop_memory.api.app import create_app
from learnloop_memory.config import Config
from learnloop_memory.store.database import Database

MARK = "CANARY-7f3a"
VICTIM = "blue"
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
TIME = "2026-01-31T12:00:00Z"


class Issuer:
    """A key set served on loopback, as the API server does, and tokens: good, forged, expired, for somebody else."""

    def __init__(self) -> None:
        self._key, self._stranger = (rsa.generate_private_key(65537, 2048) for _ in range(2))

    def document(self) -> bytes:
        """The JWKS."""
        own = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return json.dumps({"keys": [{**own, "kid": "k", "alg": "RS256"}]}).encode()

    def token(self, namespace: str, *, forged: bool = False, **changes: Any) -> str:
        """Of the account `default` of a namespace; `forged`: signed with another key under the same id."""
        claims = {
            "iss": "https://issuer",
            "aud": ["learnloop"],
            "exp": int(time.time()) + 36_000,
            "sub": f"system:serviceaccount:{namespace}:default",
            "kubernetes.io": {"namespace": namespace},
        } | changes
        return jwt.encode(claims, self._stranger if forged else self._key, algorithm="RS256", headers={"kid": "k"})

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its URL while it is served."""
        document = self.document()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: Any) -> None:
                return None

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/jwks"
        finally:
            server.shutdown()
            server.server_close()


@dataclass
class House:
    """The service, a client of it, and who signs."""

    db: Database
    client: httpx.AsyncClient
    issuer: Issuer


@asynccontextmanager
async def running(dsn: str, directory: Path) -> AsyncIterator[House]:
    """The data plane in this process, with authentication on."""
    issuer = Issuer()
    with issuer.served() as url:
        values = {"dsn": dsn, "artifacts": f"file://{directory / 'artifacts'}", "jwks_url": url, "sweep_seconds": 0.2}
        app = create_app(Config.model_validate({**values, "issuer": "https://issuer", "pool_size": 8}))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://data", trust_env=False) as client,
        ):
            db: Database = app.state.service.db
            await db.ready.wait()
            yield House(db, client, issuer)


async def plant(house: House) -> list[str]:
    """Gives the victim rows with the mark in them; returns the ids an attacker may have heard of."""
    headers = {"Authorization": f"Bearer {house.issuer.token(VICTIM)}"}

    async def send(method: str, path: str, **body: Any) -> Any:
        answer = await house.client.request(method, path, headers=headers, json=body or None)
        if answer.status_code >= 300:
            raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    policy = {"components": [{"name": "return", "type": "environment", "weight": 1.0}]}
    await send("PUT", "/api/v1/rewards/policies/secret/revisions/r1", **policy)
    await send("PUT", "/api/v1/agents/walker", reward_policy="secret", reward_policy_revision="r1")
    memory = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": f"the code is {MARK}"}}
    stored = await send("POST", "/api/v1/memory/store", **memory)
    step = {"observation": MARK, "action": 1, "reward": 1.0}
    episode = {"trajectory_id": "t-secret", "agent": "walker", "task": MARK, "episode_id": "e", "policy_revision": "r"}
    times = {"started_at": TIME, "ended_at": TIME, "metadata": {"user_id": "anna"}}
    outcome = {"status": "completed", "episode_return": 1.0, "success": True}
    recalled = await send("POST", "/api/v1/memory/retrieve", agent_id="walker", context=MARK)
    seen = {"retrieval_ids": [recalled["retrieval_id"]]}
    await send("POST", "/api/v1/trajectories", **episode, **times, **seen, outcome=outcome, steps=[step])
    await send("POST", "/api/v1/feedback", trajectory_id="t-secret", user_id="anna", thumbs="up")
    await send("PUT", "/api/v1/users/zoe/opt-out")
    await send("POST", "/api/v1/memory/snapshots", agent_id="walker", name="snap")
    deployed = {"model_deployment": "walker", "revision": "r", "uri": f"s3://{MARK}", "deployed_at": TIME}
    await send("PUT", "/api/v1/models/walker/deployed", **deployed)
    beat = {"job": "walker-1", "attempt": 0, "phase": "done", "step": 1, "total_steps": 1, "world_size": 1, "at": TIME}
    await send("PUT", "/api/v1/training/runs/walker-1/heartbeat", **beat, steps_per_second=1.0, message=MARK)
    for _ in range(300):
        rewards = await send("GET", "/api/v1/rewards/history?agent_id=walker")
        records = await send("GET", "/api/v1/audit/records")
        if rewards["rewards"] and len(records["records"]) > 5:
            break
    return [stored["id"], recalled["retrieval_id"], "t-secret", "walker", "secret", "walker-1", "snap", MARK]


async def held(dsn: str) -> Counter[str]:
    """The victim's rows by table, as a superuser sees them; without the queues, which empty by themselves."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'namespace'"
            " WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE '%pending'"
        )
        counted: Counter[str] = Counter()
        for row in tables:
            query = f"SELECT count(*) FROM {row['relname']} WHERE namespace = $1"
            counted[row["relname"]] = await connection.fetchval(query, VICTIM)
        return counted
    finally:
        await connection.close()


async def attack(house: House, requests: int, ids: list[str], seed: int) -> Counter[str]:
    """So many requests by who may not see the victim's rows; counts answers with the mark in them."""
    rng, counted, issuer = random.Random(seed), Counter[str](), house.issuer
    honest = [issuer.token("red"), issuer.token("blue-2")]
    bad = [
        issuer.token(VICTIM, forged=True),
        issuer.token(VICTIM, exp=1),
        issuer.token(VICTIM, aud=["other"]),
        issuer.token("red", sub=f"system:serviceaccount:{VICTIM}:default"),
        issuer.token("red", **{"kubernetes.io": {"namespace": VICTIM}}),
        jwt.encode({"kubernetes.io": {"namespace": VICTIM}}, "k" * 32, algorithm="HS256", headers={"kid": "k"}),
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
        asked = json.dumps([path, body])
        leaked = MARK.encode() in answer.content and MARK not in asked
        let_in = not trusted and answer.is_success
        counted += Counter(requests=1, answered=int(answer.is_success), leaked=int(leaked or let_in))
        if leaked or let_in:
            print(f"leaked: {method} {path} {body} {headers} {query}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code >= 500:
            raise SystemExit(f"{method} {path} {body}: {answer.status_code} {answer.text}")
    return counted


def _request(rng: random.Random, values: list[str]) -> tuple[str, str, Any]:
    value, agent = httpx.QueryParams({"v": rng.choice(values)})["v"], rng.choice(["walker", rng.choice(values)])
    quoted = str(httpx.URL("http://x", params={"v": value}).query.decode()[2:]).replace("+", "%20")
    reads = (
        f"/api/v1/memory/entries?agent_id={agent}&ended=true",
        f"/api/v1/memory/export?agent_id={agent}",
        f"/api/v1/memory/ranker?agent_id={agent}",
        f"/api/v1/memory/snapshots?agent_id={agent}",
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
        ("POST", "/api/v1/memory/snapshots/fork", {"agent_id": agent, "name": "snap", "into": "mine"}),
        ("POST", "/api/v1/memory/feedback", {"retrieval_id": value, "reward": 1.0}),
        ("POST", "/api/v1/rewards/calculate", {"agent_id": agent, "result": {}}),
        ("POST", "/api/v1/erasure", {"user_id": value}),
        ("POST", "/api/v1/erasure", {"agent_id": agent}),
        ("DELETE", f"/api/v1/training/runs/{quoted}", None),
        ("DELETE", f"/api/v1/agents/{quoted}", None),
        ("PUT", f"/api/v1/users/{quoted}/opt-out", None),
    )
    return rng.choice(writes)
