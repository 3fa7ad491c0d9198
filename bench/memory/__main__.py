"""`make bench-memory`: a table for people on stderr, one JSON object as the last line of stdout.

`python -m bench.memory --quick` does the same with a tenth of the memories and seconds, to see what a change did.
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import uvloop

from bench.memory import arms, crossover, encrypted, forgetting, quality, rewarded, weaviate_arm
from bench.memory.data import Agent, generate
from bench.memory.filling import fill, recall_at_10, say, wait_indexed
from bench.memory.speed import large_agent, speed, stores
from testing.servers.data_plane_process import Product, postgres

QUESTIONS = 20
SERIAL = 1010


@dataclass(frozen=True)
class Size:
    """How much is measured; the targets are meant for the whole."""

    agents: int = 100
    memories: int = 1000
    large: int = 50_000
    seconds: float = 10.0
    singles: int = 60_000
    batches: int = 40
    ways: tuple[int, ...] = (20_000, 110_000)
    tls: bool = False


QUICK = Size(agents=10, large=5000, seconds=2.0, singles=5000, batches=8, ways=(6000,))
SET = "generated"
"""Memories, questions and answers of all figures: none of them says how good recall is on words nobody here wrote."""
TARGETS = {
    "open_100rps_p50_ms": ("<=", 2.0),
    "open_100rps_p99_ms": ("<=", 8.0),
    "open_100rps_with_large_p99_ms": ("<=", 8.0),
    "saturated_rps": (">=", 800.0),
    "clients100_p99_ms": ("<=", 25.0),
    "clients100_p99_served_or_refused_ms": ("<=", 25.0),
    "recall_at_10_small": (">=", 0.999),
    "recall_at_10_large": (">=", 0.999),
    # In each way the service may choose, for agents on both sides of where it chooses the index by itself.
    "recall_at_10_cached": (">=", 0.999),
    "recall_at_10_scanned": (">=", 0.999),
    "recall_at_10_nearest": (">=", 0.999),
    "recall_at_10_hnsw": (">=", 0.999),
    # As the service asks: 200 of the store, ranked again by the exact vectors. The bare ten stand beside it.
    "weaviate_http_recall_at_10_small": (">=", 0.999),
    "weaviate_http_recall_at_10_large": (">=", 0.999),
    "cold_start_s": ("<=", 1.0),
    "rss_mb": ("<=", 250.0),
    "stores_per_s_single": (">=", 3000.0),
    "stores_per_s_batched": (">=", 40_000.0),
    "readable_after_ack_ms": ("<=", 1.0),
    "precision_at_10": (">=", 0.90),
    "recall_gain_after_500_feedbacks": (">=", 0.10),
    "answered_by_the_learned_ranker": (">=", 1.0),
    "useless_ranker_activated": ("<=", 0.01),
    "forgetting_keeps_of_oracle": (">=", 0.95),
    "junk_ratio_after": ("<=", 0.05),
}
# "p99 at 100 clients" can be read in two more ways; they stand beside the goal, in the table and in `also_above_25_ms`.
OTHER_READINGS = ("clients100_p99_with_retries_ms", "clients100_p99_without_refusals_ms")


async def measure(size: Size) -> dict[str, Any]:
    """Everything."""
    say("making up memories …")
    agents = generate(size.agents, size.memories, size.large, QUESTIONS, seed=2026)
    figures: dict[str, Any] = {
        "agents": size.agents,
        "memories_each": size.memories,
        "memories_large": size.large,
    }
    figures |= {"load_average_before": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE ours; CREATE DATABASE others;")
        with Product(server.get_uri("ours"), Path(server.pgdata), Path(directory), INDEX_CHECK_SECONDS="2") as product:
            figures |= await compare(server, product, agents, size)
    say("recall@10 by each way of answering …")
    figures |= await by_way(size)
    return figures | {"load_average_after": round(os.getloadavg()[0], 2)}


async def by_way(size: Size) -> dict[str, Any]:
    """The worst recall@10 over HTTP of each way, over agents of all these sizes; and every figure of each."""
    found = await crossover.measure(size.ways, seconds=size.seconds / 5)
    worst = {f"recall_at_10_{way}": min(found[f"{way}_{n}_recall_at_10"] for n in size.ways) for way in crossover.WAYS}
    return worst | {f"way_{name}": value for name, value in found.items()}


async def compare(server: Any, product: Product, agents: Sequence[Agent], size: Size) -> dict[str, Any]:
    """Ours and every arm, on the same data in the same server, one after the other."""
    figures: dict[str, Any] = {}
    total = sum(len(agent.texts) for agent in agents)
    say(f"storing {total} memories through the API …")
    started = time.perf_counter()
    ids = await fill(product, agents)
    figures["filled_per_s_one_writer"] = round(total / (time.perf_counter() - started), 1)
    watcher = await asyncpg.connect(server.get_uri("ours"))
    figures["indexed_after_last_ack_s"] = round(await wait_indexed(watcher, total), 2)
    for table in ("memory_vec", "agent_memories"):
        await watcher.execute(f"VACUUM ANALYZE {table}")
    say("loading the other arms …")
    other = await arms.load(server.get_uri("others"), agents)
    product.stop()
    figures["cold_start_s"] = round(float(np.median([_restart(product) for _ in range(5)])), 3)
    await asyncio.sleep(3)
    say("asking …")
    small = [recall_at_10(product, agent, ids[agent.name]) for agent in agents[:-1:10]]
    large, plan = recall_at_10(product, agents[-1], ids["agent-large"])
    figures |= {"recall_at_10_small": round(float(np.mean([s[0] for s in small])), 4), "plan_small": small[0][1]}
    figures |= {"recall_at_10_large": round(large, 4), "plan_large": plan}
    figures |= await speed(product, agents, size.seconds)
    figures |= await large_agent(product, agents[-1:], size.seconds / 2)
    peers = await arms.measure(other, agents, SERIAL)
    figures |= {f"{arm}_{key}": value for arm, found in peers.items() for key, value in asdict(found).items()}
    figures["specified_ivfflat_recall_at_10"] = await arms.specified_index_recall(other, agents)
    figures["ours_over_asyncpg_floor_p50"] = round(figures["one_client_p50_ms"] / peers["asyncpg_floor"].p50, 2)
    figures |= resident(product, "")
    say("storing …")
    if size.tls:
        say("asking without and with TLS …")
        figures |= await encrypted.beside(product, agents[:-1], size.seconds)
    figures |= await stores(product, watcher, singles=size.singles, batches=size.batches, seconds=size.seconds)
    figures |= resident(product, "_after_stores")
    say("quality …")
    for part in (quality.precision, quality.learning, rewarded.learning, quality.junk):
        figures |= part(product)
    figures |= rewarded.useless()
    figures |= await forgetting.lived(product, watcher) | forgetting.pure()
    figures |= await weaviate_arm.beside(product, server.get_uri("ours"), agents, ids)
    await other.close()
    await watcher.close()
    return figures


def resident(product: Product, when: str) -> dict[str, float]:
    """Memory of the process: in MiB, and in MB of 10^6 bytes, which the target means."""
    mib = product.rss_mib()
    return {f"rss_mib{when}": round(mib, 1), f"rss_mb{when}": round(mib * 2**20 / 1e6, 1)}


def _restart(product: Product) -> float:
    product.stop()
    return product.start()


def main() -> None:
    """Measures, prints the table and the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it; its figures answer to no target")
    parser.add_argument("--tls", action="store_true", help="recalls over TLS as well, beside those without")
    options = parser.parse_args()
    quick = options.quick
    started = time.time()
    figures = {"set": SET} | uvloop.run(measure(replace(QUICK if quick else Size(), tls=options.tls)))
    say(f"on a {SET} set: its words and its questions are made here; `make bench-recall` asks about other people's")
    missed = []
    for name, (sign, target) in TARGETS.items():
        met = figures[name] <= target if sign == "<=" else figures[name] >= target
        missed += [] if met else [name]
        say(f"{'met   ' if met else 'MISSED'} {name:32} {figures[name]:>12} (target {sign} {target})")
    for name in OTHER_READINGS:
        say(f"beside {name:40} {figures[name]:>8} (another reading of that goal: bench/memory/speed.py)")
    figures |= {"also_above_25_ms": [name for name in OTHER_READINGS if figures[name] > 25.0]}
    figures |= {"missed": missed, "seconds": round(time.time() - started, 1), "machine": platform.machine()}
    print(json.dumps(figures))
    # A slow figure may be the machine's; an answer that is not the nearest ten is ours.
    if not quick and any(name.startswith("recall_at_10") for name in missed):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
