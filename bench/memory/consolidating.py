"""The process's memory after a consolidation: `python -m bench.memory.consolidating [--quick]`.

One agent has 20,000 memories, which is as many as a pass looks at. After a restart three passes are
asked for, one after the other. The last line is a JSON object of MB (10^6 bytes) of the service's resident memory:
after the start, the highest of each pass, and SETTLED_SECONDS after it.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.memory.data import generate
from bench.memory.speed import BATCH, memory_of
from testing.servers.data_plane_process import Product, postgres

PASSES = 3
SETTLED_SECONDS = 6.0
LOOK_SECONDS = 0.05
AGENT = "agent-large"
ON_DEMAND = {"CONSOLIDATE_SECONDS": "0"}


def main() -> None:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory.consolidating", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4,000 memories")
    memories = 4000 if parser.parse_args().quick else 20_000
    figures: dict[str, Any] = {"memories": memories, "load_average_before": round(os.getloadavg()[0], 2)}
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE consolidating;")
        dsn = server.get_uri("consolidating")
        with Product(dsn, Path(server.pgdata), Path(directory), **ON_DEMAND) as product:
            _fill(product, memories)
            product.stop()
            product.start()
            figures |= _measure(product)
    print(json.dumps(figures))


def _fill(product: Product, memories: int) -> None:
    texts = generate(0, 0, memories, 1, seed=2028)[-1].texts
    for start in range(0, memories, 1000):
        product.post(BATCH, {"memories": [memory_of(AGENT, text) for text in texts[start : start + 1000]]})


def _measure(product: Product) -> dict[str, Any]:
    time.sleep(SETTLED_SECONDS)
    figures: dict[str, Any] = {"started_mb": _mb(product)}
    for number in range(1, PASSES + 1):
        started, highest = time.monotonic(), 0.0
        with ThreadPoolExecutor(1) as asking:
            request = asking.submit(product.post, "/api/v1/memory/consolidate", {"agent_id": AGENT})
            while not request.done():
                highest = max(highest, _mb(product))
                time.sleep(LOOK_SECONDS)
            figures[f"pass{number}_looked_at"] = request.result()["looked_at"]
        figures[f"pass{number}_seconds"] = round(time.monotonic() - started, 1)
        time.sleep(SETTLED_SECONDS)
        figures |= {f"pass{number}_highest_mb": highest, f"pass{number}_left_mb": _mb(product)}
    return figures


def _mb(product: Product) -> float:
    return round(product.rss_mib() * 2**20 / 1e6, 1)


if __name__ == "__main__":
    main()
