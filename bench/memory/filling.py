"""Filling the service with the agents' memories, and asking for them."""

import sys
from collections.abc import Sequence

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


def answers(product: Product, agent: Agent) -> tuple[list[list[str]], set[str]]:
    """The ids of each question's answer, and the plans by which they were found."""
    ids, plans = [], set()
    for question in agent.questions:
        answer = product.post(RETRIEVE, {"agent_id": agent.name, "context": question, "k": 10, "logged": False})
        ids.append([hit["id"] for hit in answer["memories"]])
        plans.add(answer["plan"])
    return ids, plans


def hit_at_10(agent: Agent, ids: list[str], results: list[list[str]]) -> float:
    """How often the memory whose words the question has is among the ten."""
    return float(np.mean([ids[index] in answer for index, answer in zip(agent.targets, results, strict=True)]))
