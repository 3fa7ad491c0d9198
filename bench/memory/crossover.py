"""From which size on proposals of an index beat looking at everything: `python -m bench.memory.crossover`.

    python -m bench.memory.crossover [--sizes 10000,20000,50000]

One agent of each size is asked the same questions by one client in four ways: `cached`, ranked exactly in the process
that keeps its vectors (the default); `scanned`, exactly by PostgreSQL, where there is no cache; `nearest`, ranked among
the nearest of all its vectors, which PostgreSQL looks at, and the limit `LEARNLOOP_EXACT_UP_TO` is below the size;
`hnsw`, the same by the agent's own index, with `LEARNLOOP_NEAREST_UP_TO` below it, too. The last line is a JSON object:
by way and size p50 and p99 in milliseconds, CPU milliseconds of service and PostgreSQL per recall (which other work on
the machine changes least), recall@10 of the vectors against brute force, and how many of the ten best that `cached`
answers by all signals (`ranked_at_10`) and by words alone (`words_at_10`) `nearest` and `hnsw` answer, too.
`hnsw_beats_cached_from`, `…_scanned_from` and `…_nearest_from` are the smallest sizes at which the index needs less CPU
than that way; null: at none of them.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg

from bench.memory import load
from bench.memory.data import Agent, generate
from bench.memory.filling import fill, recall_at_10, say, wait_indexed
from bench.memory.speed import RETRIEVE, retrievals
from testing.servers.data_plane_process import Product, postgres

QUESTIONS, SECONDS, PATIENCE = 100, 8.0, 900.0
FEW = 20  # for the way that takes up to a second for each
SIGNALS: dict[str, dict[str, Any]] = {"ranked_at_10": {}, "words_at_10": {"weights": {"lexical": 1}}}
WAYS: dict[str, dict[str, str]] = {
    "cached": {"EXACT_UP_TO": str(10**6)},
    "scanned": {"EXACT_UP_TO": str(10**6), "CACHE_MIB": "0"},
    "nearest": {"EXACT_UP_TO": "5000", "INDEX_CHECK_SECONDS": "1", "SWEEP_SECONDS": "1"},
    "hnsw": {"EXACT_UP_TO": "5000", "NEAREST_UP_TO": "5000", "INDEX_CHECK_SECONDS": "1", "SWEEP_SECONDS": "1"},
}
PLANS = {"cached": "exact", "scanned": "exact", "nearest": "nearest", "hnsw": "hnsw"}


async def measure(sizes: Sequence[int], *, seconds: float = SECONDS) -> dict[str, Any]:
    """Fills once, and asks in each way, for so many seconds twice."""
    agents = [replace(generate(0, 0, size, QUESTIONS, seed=size)[0], name=f"agent-{size}") for size in sizes]
    exact: dict[str, list[set[str]]] = {}
    found: dict[str, Any] = {"sizes": list(sizes), "load_average_before": round(os.getloadavg()[0], 2)}
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE crossover;")
        dsn = server.get_uri("crossover")
        product = Product(dsn, Path(server.pgdata), Path(directory), RECALL_WAIT_MS="10000")
        product.start()
        try:
            say("storing …")
            ids = await fill(product, agents)
            watcher = await asyncpg.connect(dsn)
            await wait_indexed(watcher, sum(sizes))
            await watcher.execute("VACUUM ANALYZE memory_vec")
            await watcher.close()
            for way, settings in WAYS.items():
                product.stop()
                product.start(RECALL_WAIT_MS="10000", **settings)
                for agent, size in zip(agents, sizes, strict=True):
                    key = f"{way}_{size}"
                    if way == "scanned":
                        few = replace(agent, questions=agent.questions[:FEW])
                        found |= await _asked(product, few, ids[agent.name], way, key, seconds)
                        continue
                    found |= await _asked(product, agent, ids[agent.name], way, key, seconds)
                    for name, changes in SIGNALS.items():
                        best = [_best(product, agent, question, changes) for question in agent.questions]
                        if way == "cached":
                            exact[f"{size}_{name}"] = best
                        else:
                            found[f"{key}_{name}"] = _shared(exact[f"{size}_{name}"], best)
        finally:
            product.stop()
    for way in ("cached", "scanned", "nearest"):
        wins = [size for size in sizes if found[f"hnsw_{size}_cpu_ms"] < found[f"{way}_{size}_cpu_ms"]]
        found[f"hnsw_beats_{way}_from"] = min(wins, default=None)
    return found


def _best(product: Product, agent: Agent, question: str, changes: dict[str, Any]) -> set[str]:
    body = {"agent_id": agent.name, "context": question, "k": 10} | changes
    return {hit["id"] for hit in product.post(RETRIEVE, body)["memories"]}


def _shared(exact: Sequence[set[str]], found: Sequence[set[str]]) -> float:
    shares = [len(one & other) / len(one) for one, other in zip(exact, found, strict=True)]
    return round(sum(shares) / len(shares), 4)


async def _asked(product: Product, agent: Agent, ids: list[str], way: str, key: str, seconds: float) -> dict[str, Any]:
    wanted, started = PLANS[way], time.monotonic()
    body = {"agent_id": agent.name, "context": agent.questions[0], "k": 10}
    while (plan := product.post(RETRIEVE, body)["plan"]) != wanted:
        if time.monotonic() - started > PATIENCE:
            raise SystemExit(f"{agent.name} is asked by {plan}, not by {wanted}")
        await asyncio.sleep(0.5)
    share, plan = recall_at_10(product, agent, ids)
    if plan != wanted:
        raise SystemExit(f"{agent.name} was asked by {plan}, not by {wanted}: its recall@10 says nothing")
    requests = retrievals([agent])
    await load.closed(product.port, requests, 1, seconds)
    before = product.cpu_seconds() + product.backends_cpu_seconds()
    timing = await load.closed(product.port, requests * 20, 1, seconds)
    cpu = product.cpu_seconds() + product.backends_cpu_seconds() - before
    say(f"{key}: p50 {timing.p50} ms, recall@10 {share:.3f}")
    figures = {"p50_ms": timing.p50, "p99_ms": timing.p99, "cpu_ms": round(1000 * cpu / timing.count, 2)}
    figures["recall_at_10"] = round(share, 4)
    return {f"{key}_{name}": value for name, value in figures.items()}


def main() -> None:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory.crossover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sizes", default="10000,20000,50000", help="memories of each agent, comma-separated, above 5000"
    )
    sizes = [int(text) for text in parser.parse_args().sizes.split(",")]
    print(json.dumps(asyncio.run(measure(sizes))))


if __name__ == "__main__":
    main()
