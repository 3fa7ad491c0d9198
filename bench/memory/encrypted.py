"""Recalls over TLS and the same without: one server process of each kind, asked in turns.

    python -m bench.memory.encrypted [SECONDS] [AGENTS]

alone, on a database of its own; `make bench-memory TLS=1` does it at the end of everything else. A client keeps its
connections, as the SDK does, so that handshakes are few; the duration of one is a figure of its own.
"""

import json
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from bench.arguments import numbers
from bench.memory import load
from bench.memory.data import Agent, generate
from bench.memory.filling import fill, say
from bench.memory.speed import retrievals
from bench.tls_next_to_plain import ROUNDS, Rounds, compared, short
from testing.certificates import authority, folder
from testing.servers.data_plane_process import Product, postgres

HANDSHAKES = 50


async def next_to_plain(product: Product, agents: Sequence[Agent], seconds: float) -> dict[str, Any]:
    """Medians of three rounds of each way, ratios of TLS over none, and whether they are within the bar."""
    with tempfile.TemporaryDirectory() as name:
        files = folder(Path(name), authority())
        context = ssl.create_default_context(cafile=str(files.bundle))
        rounds: Rounds = {"plain": [], "tls": []}
        for _ in range(ROUNDS):
            for way in rounds:
                client = context if way == "tls" else None
                settings = short(files.environment()) if client else {}
                product.stop()
                product.tls = client
                product.start(**settings)
                rounds[way].append(await _round(product, agents, seconds / ROUNDS, client))
        taken = [await _handshake(product.port, context) for _ in range(HANDSHAKES)]
    product.stop()
    product.tls = None
    product.start()
    return compared(rounds) | {"tls_handshake_p50_ms": round(1000 * median(taken), 3)}


async def _round(
    product: Product, agents: Sequence[Agent], seconds: float, tls: ssl.SSLContext | None
) -> dict[str, float]:
    requests = retrievals(agents)
    await load.closed(product.port, requests, 4, 1.0, tls)
    calm = await load.opened(product.port, requests, 100, seconds, tls)
    before = product.cpu_seconds()
    one = await load.closed(product.port, requests * 20, 1, seconds / 2, tls)
    cpu = 1000 * (product.cpu_seconds() - before) / one.count
    pushed = await load.closed(product.port, requests * 20, 16, seconds, tls)
    if calm.errors + one.errors + pushed.errors:
        raise SystemExit("a recall was answered by an error")
    return {
        "open_100rps_p50_ms": calm.p50,
        "open_100rps_p99_ms": calm.p99,
        "one_client_p50_ms": one.p50,
        "cpu_ms_per_recall": round(cpu, 3),
        "clients16_rps": round(pushed.rps, 1),
    }


async def _handshake(port: int, tls: ssl.SSLContext) -> float:
    started = time.perf_counter()
    connection = await load.Connection().open(port, tls)
    took = time.perf_counter() - started
    connection.close()
    return took


async def alone(seconds: float, count: int) -> dict[str, Any]:
    """The same on a database of its own."""
    agents = generate(count, 500, 1000, 20, seed=2026)[:-1]
    with (
        postgres() as server,
        tempfile.TemporaryDirectory() as directory,
        Product(server.get_uri(), Path(server.pgdata), Path(directory)) as product,
    ):
        say(f"storing {sum(len(agent.texts) for agent in agents)} memories …")
        await fill(product, agents)
        say("asking without and with TLS …")
        return await next_to_plain(product, agents, seconds)


def main(arguments: list[str]) -> int:
    """1 when TLS costs more than the bar."""
    options = numbers(__doc__, arguments, seconds=15.0, agents=10)
    figures = uvloop.run(alone(options.seconds, int(options.agents)))
    print(json.dumps({"bench": "memory-encrypted", **figures}))
    return 0 if figures["tls_within_bar"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
