"""How fast: recalls at a fixed rate and as many as go, a large agent's, and stores one by one and in batches."""

import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.memory import load
from bench.memory.data import Agent
from testing.servers.data_plane_process import Product

RETRIEVE, STORE, BATCH = "/api/v1/memory/retrieve", "/api/v1/memory/store", "/api/v1/memory/store/batch"


def memory_of(agent: str, text: str) -> dict[str, Any]:
    """A memory as it is stored."""
    return {"agent_id": agent, "memory_type": "semantic", "content": {"text": text}}


def retrievals(agents: Sequence[Agent], seed: int = 1, **changes: Any) -> list[bytes]:
    """Every agent's questions, in a random order."""
    bodies = [
        {"agent_id": agent.name, "context": question, "k": 10} | changes
        for agent in agents
        for question in agent.questions
    ]
    random.Random(seed).shuffle(bodies)
    return [load.post(RETRIEVE, json.dumps(body).encode()) for body in bodies]


async def consolidating(product: Product, agents: Sequence[Agent], seconds: float) -> dict[str, float]:
    """Latency at 100 requests a second while the service consolidates one agent after the other."""
    busy = await load.opened(product.port, retrievals(agents[:-1]), 100, seconds)
    return {"consolidating_100rps_p50_ms": busy.p50, "consolidating_100rps_p99_ms": busy.p99}


async def speed(product: Product, agents: Sequence[Agent], seconds: float) -> dict[str, float]:
    """Latency at 100 requests a second, throughput when pushed, latency with 100 clients.

    100 clients that each send again as soon as they have an answer are more than any process on two cores can answer
    within 25 ms: 4,000 requests a second. The service refuses what it cannot answer in time, and the clients wait as
    it says. "p99 at 100 clients" can then be read in four ways, and all of them are here:

    - `clients100_p99_ms`: of the answers, refusals left out;
    - `clients100_p99_served_or_refused_ms`: of every attempt, from sending it to the answer or the refusal. The goal is
      this and the first: a refusal must not keep its caller waiting longer;
    - `clients100_p99_with_retries_ms`: from the first attempt to the answer, the pauses between them included;
    - `clients100_p99_without_refusals_ms`: where everybody waits for their turn instead, in a run of its own.

    `clients100_refused_share` is the share of the attempts that were refused.
    """
    requests, mixed = retrievals(agents[:-1]), retrievals(agents)
    await load.closed(product.port, mixed, 4, 2.0)
    calm = await load.opened(product.port, requests, 100, seconds)
    everyone = await load.opened(product.port, mixed, 100, seconds)
    before = product.cpu_seconds(), product.backends_cpu_seconds()
    one = await load.closed(product.port, requests, 1, seconds / 2)
    service = 1000 * (product.cpu_seconds() - before[0]) / one.count
    postgresql = 1000 * (product.backends_cpu_seconds() - before[1]) / one.count
    print("  16 and 100 clients …", file=sys.stderr, flush=True)
    pushed = await load.closed(product.port, requests * 20, 16, seconds)
    crowd = await load.closed(product.port, requests * 20, 100, seconds)
    product.stop()
    product.start()
    await load.closed(product.port, requests, 4, 2.0)
    patient = await load.closed(product.port, requests * 20, 100, seconds)
    saturated = max(pushed.rps, crowd.rps, patient.rps)
    return {
        "open_100rps_p50_ms": calm.p50,
        "open_100rps_p99_ms": calm.p99,
        "open_100rps_client_late_p99_ms": calm.late_p99,  # within the figure above, and none of the service's
        # The same with one request in 101 for the large agent.
        "open_100rps_with_large_p50_ms": everyone.p50,
        "open_100rps_with_large_p99_ms": everyone.p99,
        # What a machine with other work on it changes least: processor time, not waiting for a processor.
        "cpu_ms_per_recall_service": round(service, 3),
        "cpu_ms_per_recall_postgresql": round(postgresql, 3),
        "one_client_p50_ms": one.p50,
        "one_client_p99_ms": one.p99,
        "saturated_rps": round(saturated, 1),
        "clients16_p99_ms": pushed.p99,
        "clients100_p99_ms": crowd.p99,
        "clients100_p99_served_or_refused_ms": crowd.p99_served_or_refused,
        "clients100_refused_share": round(crowd.refused / (crowd.refused + crowd.count), 3),
        "clients100_p99_with_retries_ms": crowd.p99_with_retries,
        "clients100_p99_without_refusals_ms": patient.p99,
        # Little's law: what 100 clients wait on average without a refusal, at the most that was answered.
        "clients100_least_mean_without_refusals_ms": round(100_000 / saturated, 1),
        "retrieve_errors": calm.errors + everyone.errors + one.errors + pushed.errors + crowd.errors + patient.errors,
    }


async def large_agent(product: Product, agents: Sequence[Agent], seconds: float) -> dict[str, float]:
    """One client's questions to the large agent."""
    timing = await load.closed(product.port, retrievals(agents) * 20, 1, seconds)
    return {"large_agent_p50_ms": timing.p50, "large_agent_p99_ms": timing.p99}


async def stores(product: Product, *, singles: int, batches: int, seconds: float) -> dict[str, float]:
    """Durable stores a second, one by one and in batches, and when the last one can be read."""
    facts = [memory_of("writer", f"single fact {i}") for i in range(singles)]
    one_by_one = [load.post(STORE, json.dumps(fact).encode()) for fact in facts]
    single = await load.closed(product.port, one_by_one, 32, seconds)
    many = [[memory_of(f"bulk-{b}", f"bulk fact {b} {i}") for i in range(2000)] for b in range(batches)]
    together = [load.post(BATCH, json.dumps({"memories": memories}).encode()) for memories in many]
    bulk = await load.closed(product.port, together, 2, 60)
    connection = await load.Connection().open(product.port)
    lags, missing = [], 0
    for number in range(200):
        text = f"zebra{number} quill{number}"
        _, body = await connection.send(load.post(STORE, json.dumps(memory_of("reader", text)).encode()))
        acknowledged, stored = time.perf_counter(), json.loads(body)["id"]
        while True:
            since = time.perf_counter()
            question = {"agent_id": "reader", "context": text, "k": 1}
            _, body = await connection.send(load.post(RETRIEVE, json.dumps(question).encode()))
            if any(hit["id"] == stored for hit in json.loads(body)["memories"]):
                break
            missing += 1
        lags.append((since - acknowledged) * 1000)
    connection.close()
    return {
        "stores_per_s_single": round(single.rps, 1),
        "stores_single_p99_ms": single.p99,
        "stores_per_s_batched": round(bulk.rps * 2000, 1),
        "store_errors": single.errors + bulk.errors,
        "readable_after_ack_ms": round(max(lags), 3),
        "reads_that_missed_the_last_store": missing,
    }
