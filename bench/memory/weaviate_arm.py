"""Both vector stores on the same rows: `python -m bench.memory.weaviate_arm [--quick]`; part of `make bench-memory`.

Memories are stored through the service, then pgvector (the large agent's own HNSW; small agents are scanned) and
Weaviate (a tenant for each agent) take them in and answer the same questions through the port the service uses, and
Weaviate once more behind the service's HTTP. Its server is built from its Go module the first time, which takes
minutes. The last line is a JSON object; `weaviate_` and `pgvector_` stand before what is of each.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from bench.memory import load
from bench.memory.data import Agent, generate
from bench.memory.filling import fill, recall_at_10, say, wait_indexed
from bench.memory.speed import RETRIEVE, retrievals
from learnloop_dataplane.embedding.embedder import HashingEmbedder
from learnloop_dataplane.errors import StoreAway
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.ranking.memory_types import ALL_TYPES
from learnloop_dataplane.vectors.pgvector import PgVectors, index_name
from learnloop_dataplane.vectors.vector_store import VectorStore
from learnloop_dataplane.vectors.weaviate import PAUSE_SECONDS, WeaviateVectors
from learnloop_dataplane.vectors.weaviate_tenants import Address, WeaviateTenants
from testing.servers.data_plane_process import Product, postgres
from testing.servers.weaviate_server import KEY, Weaviate, own_weaviate

NAMESPACE, QUESTIONS, CLIENTS = "default", 20, 8
TIES = 5e-4  # the stores hold half precision: memories this near to the tenth are as good


@dataclass(frozen=True)
class Asked:
    """One question to one agent: the query, and which of its memories are right answers."""

    agent: str
    query: Query
    right: frozenset[UUID]


def main() -> None:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory.weaviate_arm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    agents, large = (10, 5000) if parser.parse_args().quick else (100, 50_000)
    figures: dict[str, Any] = {"agents": agents, "memories_each": 1000, "memories_large": large}
    figures |= {"load_average_before": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
    started = time.time()
    figures |= asyncio.run(_alone(generate(agents, 1000, large, QUESTIONS, seed=2026)))
    figures |= {"load_average_after": round(os.getloadavg()[0], 2), "seconds": round(time.time() - started, 1)}
    print(json.dumps(figures))


async def _alone(agents: Sequence[Agent]) -> dict[str, Any]:
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE ours;")
        dsn = server.get_uri("ours")
        with Product(dsn, Path(server.pgdata), Path(directory)) as product:
            say("storing through the API …")
            ids = await fill(product, agents)
            watcher = await asyncpg.connect(dsn)
            await wait_indexed(watcher, sum(len(agent.texts) for agent in agents))
            await watcher.execute("VACUUM ANALYZE memory_vec")
            await watcher.close()
            return await beside(product, dsn, agents, ids)


async def beside(product: Product, dsn: str, agents: Sequence[Agent], ids: dict[str, list[str]]) -> dict[str, Any]:
    """Both stores on what the product holds.

    Args:
        dsn: of the product's database.
        agents: the large one is the last.
        ids: of each agent's memories in the order of its texts.
    """
    questions = [_asked(agent, ids[agent.name], number) for number in range(QUESTIONS) for agent in agents]
    figures: dict[str, Any] = {}
    product.stop()  # it has the store forget every agent that it scans itself, and these are such
    with tempfile.TemporaryDirectory() as directory, own_weaviate(Path(directory)) as server:
        embedder, db = HashingEmbedder(), Database(dsn)
        db.start()
        await db.ready.wait()
        tenants = WeaviateTenants(_address(server), KEY)
        pgvector, weaviate = PgVectors(db, embedder, dsn, build_mib=512), WeaviateVectors(db, embedder, tenants)
        for name, store, held in (("pgvector", pgvector, agents[-1:]), ("weaviate", weaviate, agents)):
            say(f"{name}: taking in {sum(len(agent.texts) for agent in held)} vectors …")
            figures |= {f"{name}_{key}": value for key, value in (await _fill(store, held)).items()}
            figures |= {f"{name}_{key}": value for key, value in (await _ask(store, questions)).items()}
        async with db.tenant(NAMESPACE) as connection:
            index = index_name(NAMESPACE, agents[-1].name, embedder.name)
            size = await connection.fetchval("SELECT pg_relation_size($1::text::regclass)", index)
        figures |= {"pgvector_index_mib": round(size / 2**20, 1), "weaviate_rss_mib": round(server.rss_mib(), 1)}
        say("weaviate: behind the service …")
        figures |= await _served(product, server, agents, ids)
        for closed in (weaviate, pgvector, db):
            await closed.close()
    return figures


async def _fill(store: VectorStore, agents: Sequence[Agent]) -> dict[str, float]:
    started = time.perf_counter()
    taken = sum([await store.follow(NAMESPACE, agent.name) for agent in agents])
    return {"vectors_taken_in_per_s": round(taken / (time.perf_counter() - started), 1)}


async def _ask(store: VectorStore, questions: Sequence[Asked]) -> dict[str, float]:
    """One question at a time, then as many as eight clients get answered. The service scans the agent where a store
    does not answer in time; here such a question is counted, and says nothing about recall."""
    unanswered = 0
    took: list[float] = []
    shares: dict[bool, list[float]] = {True: [], False: []}
    for asked in questions:
        before = time.perf_counter()
        try:
            near = await store.nearest(NAMESPACE, asked.agent, asked.query, 10)
        except StoreAway:
            unanswered += 1
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        took.append((time.perf_counter() - before) * 1000)
        shares[asked.agent == "agent-large"].append(len({found.id for found in near} & asked.right) / 10)
    waiting, late = list(questions), list[Asked]()

    async def client() -> None:
        while waiting:
            asked = waiting.pop()
            try:
                await store.nearest(NAMESPACE, asked.agent, asked.query, 10)
            except StoreAway:
                late.append(asked)
                await asyncio.sleep(PAUSE_SECONDS)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    rate = (len(questions) - len(late)) / (time.perf_counter() - started)
    p50, p99 = np.percentile(took, [50, 99])
    return {
        "recall_at_10_small": round(float(np.mean(shares[False])), 4),
        "recall_at_10_large": round(float(np.mean(shares[True])), 4),
        "unanswered": unanswered + len(late),
        "p50_ms": round(float(p50), 3),
        "p99_ms": round(float(p99), 3),
        f"rps_{CLIENTS}_clients": round(rate, 1),
    }


async def _served(
    product: Product, server: Weaviate, agents: Sequence[Agent], ids: dict[str, list[str]]
) -> dict[str, Any]:
    """The product with this Weaviate and a limit so low that every agent goes through it."""
    product.stop()
    address = {"WEAVIATE_URL": server.url, "WEAVIATE_GRPC": server.grpc, "WEAVIATE_KEY": KEY}
    product.start(EXACT_UP_TO="500", INDEX_CHECK_SECONDS="1", SWEEP_SECONDS="1", **address)
    for agent in agents:
        body = {"agent_id": agent.name, "context": agent.questions[0], "k": 10}
        while True:
            if product.post(RETRIEVE, body)["plan"] == "weaviate":
                break
            await asyncio.sleep(0.2)
    small = [recall_at_10(product, agent, ids[agent.name])[0] for agent in agents[:-1:10]]
    large, plan = recall_at_10(product, agents[-1], ids[agents[-1].name])
    calm = await load.closed(product.port, retrievals(agents[:-1]), 1, 10.0)
    heavy = await load.closed(product.port, retrievals(agents[-1:]), 1, 10.0)
    return {
        "weaviate_http_plan": plan,
        "weaviate_http_recall_at_10_small": round(float(np.mean(small)), 4),
        "weaviate_http_recall_at_10_large": round(large, 4),
        "weaviate_http_one_client_p50_ms": calm.p50,
        "weaviate_http_one_client_p99_ms": calm.p99,
        "weaviate_http_large_agent_p50_ms": heavy.p50,
        "weaviate_http_errors": calm.errors + heavy.errors,
    }


def _asked(agent: Agent, ids: Sequence[str], number: int) -> Asked:
    score = agent.matrix @ agent.asked[number]
    bar = score[agent.nearest(number)[-1]] - TIES
    right = frozenset(UUID(ids[int(place)]) for place in np.flatnonzero(score >= bar))
    text = agent.questions[number]
    return Asked(
        agent.name, Query(text, text.split(), agent.asked[number], HashingEmbedder().name, None, ALL_TYPES), right
    )


def _address(server: Weaviate) -> Address:
    host, port = server.url.removeprefix("http://").split(":")
    return Address(host, int(port), False, host, int(server.grpc.split(":")[1]))


if __name__ == "__main__":
    main()
