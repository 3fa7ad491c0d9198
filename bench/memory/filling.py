"""Filling the service with the agents' memories, and how much of the exact answer it finds."""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.memory.data import Agent
from bench.memory.speed import BATCH, RETRIEVE, memory_of
from testing.servers.data_plane_process import Product


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


async def fill(product: Product, agents: Sequence[Agent]) -> dict[str, list[str]]:
    """Stores everything through the API; for each agent the memories' ids in the order of its texts."""
    ids: dict[str, list[str]] = {}
    for number, agent in enumerate(agents):
        if number % 20 == 0:
            say(f"  agent {number + 1} of {len(agents)}")
        ids[agent.name] = []
        for start in range(0, len(agent.texts), 1000):
            memories = [memory_of(agent.name, text) for text in agent.texts[start : start + 1000]]
            ids[agent.name] += product.post(BATCH, {"memories": memories})["ids"]
    return ids


async def wait_indexed(connection: Any, memories: int) -> float:
    """Seconds until everything is indexed."""
    started = time.perf_counter()
    while True:
        if await connection.fetchval("SELECT count(*) FROM memory_vec WHERE embedding IS NOT NULL") >= memories:
            return time.perf_counter() - started
        await asyncio.sleep(0.2)


def recall_at_10(product: Product, agent: Agent, ids: list[str]) -> tuple[float, str]:
    """Ours by vectors alone against brute force in float32; a tie within half precision is no miss."""
    place = {identity: index for index, identity in enumerate(ids)}
    shares = []
    for number, question in enumerate(agent.questions):
        body = {"agent_id": agent.name, "context": question, "k": 10, "weights": {"vector": 1}}
        answer = product.post(RETRIEVE, body)
        score = agent.matrix @ agent.asked[number]
        bar = score[agent.nearest(number)[-1]] - 5e-4
        shares.append(sum(score[place[hit["id"]]] >= bar for hit in answer["memories"]) / 10)
    return float(np.mean(shares)), answer["plan"]
