"""Weaviate asked directly, with a tenant for each agent: `python -m bench.memory.weaviate_arm [--quick]`.

The same memories and questions as `python -m bench.memory`, through the client that the service uses, beside the numpy
floor. The server is built from its Go module the first time, which takes minutes. The last line is a JSON object.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.memory.arms import numpy_floor, serially
from bench.memory.data import Agent, generate
from weaviate_server import KEY, own_weaviate

from learnloop_memory.vectors.tenants import FOREVER, Address, Item, Tenants, collection_of, tenant_of

BATCH, QUESTIONS, SERIAL = 500, 20, 1010
COLLECTION = collection_of("hashing-384-v2")


def main() -> None:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory.weaviate_arm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    agents, large = (10, 5000) if parser.parse_args().quick else (100, 50_000)
    made = generate(agents, 1000, large, QUESTIONS, seed=2026)
    figures: dict[str, Any] = {"agents": agents, "memories_each": 1000, "memories_large": large}
    figures |= {"load_average_before": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as directory, own_weaviate(Path(directory)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        grpc_port = int(server.grpc.split(":")[1])
        figures |= asyncio.run(measure(Address(host, int(port), False, host, grpc_port), made))
    print(json.dumps(figures | {"load_average_after": round(os.getloadavg()[0], 2)}))


async def measure(address: Address, agents: Sequence[Agent]) -> dict[str, Any]:
    """Fills every agent's tenant, then asks one question at a time."""
    tenants = Tenants(address, KEY)
    names = [tenant_of("bench", agent.name) for agent in agents]
    started = time.perf_counter()
    for name, agent in zip(names, agents, strict=True):
        for start in range(0, len(agent.texts), BATCH):
            part = agent.matrix[start : start + BATCH]
            items = [Item(UUID(int=start + place), 1, 0.0, FOREVER, vector) for place, vector in enumerate(part)]
            await tenants.upsert(COLLECTION, name, items)
    filled = time.perf_counter() - started

    async def weaviate(agent: int, question: int) -> list[int]:
        asked = agents[agent].asked[question]
        near = await tenants.nearest(COLLECTION, names[agent], asked, 10, [1], time.time())
        return [found.id.int for found in near]

    arms = {"weaviate": weaviate, "numpy_floor": numpy_floor(agents)}
    found = {arm: await serially(ask, agents, SERIAL) for arm, ask in arms.items()}
    await tenants.close()
    total = sum(len(agent.texts) for agent in agents)
    rates = {"weaviate_vectors_per_s_one_writer": round(total / filled, 1)}
    return rates | {f"{arm}_{key}": value for arm, item in found.items() for key, value in asdict(item).items()}


if __name__ == "__main__":
    main()
