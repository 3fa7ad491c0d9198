"""The cost of a memory budget for simultaneous recalls: `python -m bench.memory.budgets [--quick]`.

One agent has 50,000 memories and loses 2,500 of them in each round; it and ten others are asked 50 times a second, half
of the questions its own, open loop, in turn while nothing is forgotten and while it is: whatever else the machine does
meets both. The last line is a JSON object: milliseconds from when a recall was due, `quiet_` and `forgetting_`, the
median over the rounds; requests that failed; seconds until the budget was kept; CPU seconds of service and PostgreSQL
for 1,000 forgotten memories, beyond those of the quiet window.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.memory import load
from bench.memory.data import generate
from bench.memory.filling import fill, say
from bench.memory.speed import retrievals
from testing.servers.data_plane_process import Product, postgres

RATE, SLICE, QUESTIONS, OTHERS = 50.0, 2500, 20, 10
PATH = "/api/v1/agents/agent-large/memory-budget"


def main() -> None:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory.budgets", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 memories, two rounds")
    quick = parser.parse_args().quick
    large, rounds, seconds = (10_000, 2, 3.0) if quick else (50_000, 6, 10.0)
    figures: dict[str, Any] = {"memories": large, "rounds": rounds, "forgotten_each_round": SLICE}
    figures |= {"load_average_before": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE budgets;")
        dsn = server.get_uri("budgets")
        with Product(dsn, Path(server.pgdata), Path(directory)) as product:
            figures |= asyncio.run(_measure(product, large, rounds, seconds))
    print(json.dumps(figures))


async def _measure(product: Product, large: int, rounds: int, seconds: float) -> dict[str, Any]:
    agents = generate(OTHERS, 1000, large, QUESTIONS, seed=2027)
    say("storing")
    await fill(product, agents)
    others, own = retrievals(agents[:-1]), retrievals(agents[-1:])
    requests = [request for pair in zip(others, own * OTHERS, strict=True) for request in pair]
    await load.opened(product.port, requests, RATE, seconds)
    windows: dict[str, list[load.Timing]] = {"quiet": [], "forgetting": []}
    baseline, cost = [], []
    for number in range(1, rounds + 1):
        quiet, idle_cpu = await _window(product, requests, seconds)
        budget = large - number * SLICE
        keeping = asyncio.create_task(_keep(product, budget))
        busy, busy_cpu = await _window(product, requests, seconds)
        baseline.append(await keeping)
        windows["quiet"].append(quiet)
        windows["forgetting"].append(busy)
        cost.append((busy_cpu - idle_cpu) * 1000 / SLICE)
        say(f"round {number}: p99 {quiet.p99} ms quiet, {busy.p99} ms forgetting, kept after {baseline[-1]:.1f} s")
    figures: dict[str, Any] = {}
    for name, timings in windows.items():
        for percentile in ("p50", "p99"):
            figures[f"{name}_{percentile}_ms"] = round(median(getattr(item, percentile) for item in timings), 3)
        figures[f"{name}_errors"] = sum(item.errors for item in timings)
    figures["kept_after_seconds"] = round(median(baseline), 2)
    figures["cpu_seconds_per_1000_forgotten"] = round(median(cost), 3)
    return figures


async def _window(product: Product, requests: list[bytes], seconds: float) -> tuple[load.Timing, float]:
    """One open loop, and the CPU seconds service and PostgreSQL took for it."""
    before = product.cpu_seconds() + product.backends_cpu_seconds()
    timing = await load.opened(product.port, requests, RATE, seconds)
    return timing, product.cpu_seconds() + product.backends_cpu_seconds() - before


async def _keep(product: Product, budget: int) -> float:
    """Seconds until the agent has no more than its new budget."""
    started = time.perf_counter()
    await asyncio.to_thread(product.post, PATH, {"memories": budget}, "PUT")
    for _ in range(3000):
        if (await asyncio.to_thread(product.get, PATH))["memories"] == budget:
            break
        await asyncio.sleep(0.1)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
