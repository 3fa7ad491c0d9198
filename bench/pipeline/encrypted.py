"""`python -m bench.pipeline.encrypted [SECONDS]`: experience over TLS beside the same without.

`make bench-pipeline TLS=1` does it, too. Of each way five rounds, in turns, either way first in every other of them; on
a data plane process of its own and with a NATS server of its own. The PostgreSQL behind it is one and the same,
reached by its socket. All legs of a way are by TLS or none is: agents to the data plane and to NATS, the data plane to
NATS.
Clients are Python of this process, so that their part of TLS counts, too.

- `accepted_http`, `accepted_nats`: as bench.pipeline.latency has them, at 100 a second in an open loop; milliseconds;
- `clients16_rps`: trajectories a second that sixteen clients hand in one after the other;
- `cpu_ms_per_trajectory`: processor time of the data plane, storing and rewarding included, until all are stored.

The last line is one JSON object. A client keeps its connections, as the SDK does, so that handshakes are few.
"""

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import nats

from bench.arguments import numbers
from bench.pipeline.chaos import register
from bench.pipeline.latency import RATE, open_loop, spread, trajectory
from bench.tls_beside_plain import Rounds, compared, short
from learnloop_api import names
from learnloop_sdk.transport.http_client import Http
from testing.certificates import Folder, authority, folder
from testing.servers.data_plane_process import Product, postgres
from testing.servers.nats_server import Nats
from testing.servers.ports import held_port

ROUNDS, SECONDS = 5, 30.0
CLIENTS = 16
PATIENCE = 180.0
PATH = "/api/v1/trajectories"


@dataclass
class Way:
    """Plain, or by TLS: a broker of its own, and what the data plane is started with."""

    broker: str
    settings: dict[str, str]
    tls: ssl.SSLContext | None


@dataclass
class Count:
    """Trajectories that were accepted so far, of both ways, and the number of the next one."""

    accepted: int = 0
    next: int = 0
    refused: int = field(default=0)
    """Answers of 503 that were asked again: a machine that is busy otherwise."""

    def fresh(self) -> dict[str, Any]:
        """One that nobody has handed in."""
        self.next += 1
        return trajectory(self.next)


async def handed_in(pool: Http, base: str, count: Count) -> None:
    """One trajectory by HTTP, until it is accepted."""
    body = json.dumps(count.fresh()).encode()
    answer = await pool.post(f"{base}{PATH}", body, {}, 60.0)
    while answer.status == 503:
        count.refused += 1
        await asyncio.sleep(0.1)
        answer = await pool.post(f"{base}{PATH}", body, {}, 60.0)
    if answer.status != 202:
        raise SystemExit(f"{PATH}: HTTP {answer.status} {answer.body[:300]!r}")
    count.accepted += 1


async def pushed(pool: Http, base: str, count: Count, seconds: float) -> float:
    """Trajectories a second of clients that wait for nothing but their answer."""
    started, before = time.perf_counter(), count.accepted

    async def client() -> None:
        while time.perf_counter() - started < seconds:
            await handed_in(pool, base, count)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return (count.accepted - before) / (time.perf_counter() - started)


async def one_round(product: Product, way: Way, count: Count, dsn: str, seconds: float) -> dict[str, float]:
    """The figures of one round."""
    pool, base = Http(), product.url
    broker = await nats.connect(way.broker, **({"tls": way.tls} if way.tls else {}))
    stream = broker.jetstream()

    async def post(_: int) -> None:
        await handed_in(pool, base, count)

    async def publish(_: int) -> None:
        body = count.fresh()
        subject = f"agent.rl.trajectory.v1.default.{body['agent']}"
        await stream.publish(subject, json.dumps(body).encode(), headers={"Nats-Msg-Id": body["trajectory_id"]})
        count.accepted += 1

    await open_loop(post, RATE, 1)
    await open_loop(publish, RATE, 1)
    await stored(dsn, count.accepted)
    before, from_here = product.cpu_seconds(), count.accepted
    by_http = spread(await open_loop(post, RATE, seconds))
    by_nats = spread(await open_loop(publish, RATE, seconds))
    rate = await pushed(pool, base, count, seconds / 2)
    await stored(dsn, count.accepted)
    cpu = 1000 * (product.cpu_seconds() - before) / (count.accepted - from_here)
    await pool.close()
    await broker.close()
    return {
        "accepted_http_p50_ms": by_http["p50_ms"],
        "accepted_http_p99_ms": by_http["p99_ms"],
        "accepted_nats_p50_ms": by_nats["p50_ms"],
        "accepted_nats_p99_ms": by_nats["p99_ms"],
        "clients16_rps": round(rate, 1),
        "cpu_ms_per_trajectory": round(cpu, 3),
    }


async def stored(dsn: str, wanted: int) -> None:
    """Returns when all of them are in the database, so that no round does another's work; SystemExit where some are
    missing after a while, or there are too many."""
    connection = await asyncpg.connect(dsn)
    until, found = time.monotonic() + PATIENCE, -1
    while found != wanted:
        if time.monotonic() > until or found > wanted:
            raise SystemExit(f"{found} trajectories are stored, {wanted} were accepted")
        await asyncio.sleep(0.2)
        found = await connection.fetchval("SELECT count(*) FROM trajectories")
    await connection.close()


@contextmanager
def ways(root: Path) -> Iterator[dict[str, Way]]:
    """Both, with their brokers running."""
    files = folder(root / "tls", authority())
    context = ssl.create_default_context(cafile=str(files.bundle))
    with held_port() as one, held_port() as other:
        plain = Nats(root / "plain", one).start()
        secret = Nats(root / "secret", other, more=_server_tls(files)).start()
        try:
            yield {
                "plain": Way(plain.url, {"NATS_URL": plain.url}, None),
                "tls": Way(
                    f"tls://localhost:{other}",
                    {"NATS_URL": f"tls://localhost:{other}", **short(files.environment())},
                    context,
                ),
            }
        finally:
            plain.kill()
            secret.kill()


def _server_tls(files: Folder) -> str:
    return f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}", min_version: "1.2" }}\n'


def beside(seconds: float) -> dict[str, Any]:
    """Medians of both ways, their ratios, and whether they are within the bar."""
    with postgres() as server, tempfile.TemporaryDirectory(prefix="learnloop-encrypted-") as name:
        root, dsn, count = Path(name), str(server.get_uri()), Count()
        rounds: Rounds = {"plain": [], "tls": []}
        with ways(root) as both:
            product = Product(dsn, Path(server.pgdata), root / "artifacts")
            for number in range(ROUNDS):
                for which, way in sorted(both.items(), reverse=bool(number % 2)):
                    if way.tls:
                        os.environ[names.ENV_TLS_CA] = way.settings["TLS_CA"]  # whom this process' own clients trust
                    product.tls = way.tls
                    product.start(**way.settings)
                    try:
                        if number == 0 and which == "plain":
                            register(product)
                        rounds[which].append(asyncio.run(one_round(product, way, count, dsn, seconds / ROUNDS)))
                    finally:
                        product.stop()
        return compared(rounds) | {"trajectories": count.accepted, "asked_again_after_503": count.refused}


def main(arguments: list[str]) -> int:
    """1 when TLS costs more than the bar."""
    seconds = numbers(__doc__, arguments, seconds=SECONDS).seconds
    load = round(os.getloadavg()[0], 2)
    figures = beside(seconds)
    told = {"load_average_before": load, "load_average_after": round(os.getloadavg()[0], 2)}
    print(json.dumps({"bench": "pipeline-encrypted", **figures, **told, "met": figures["tls_within_bar"]}))
    return 0 if figures["tls_within_bar"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
