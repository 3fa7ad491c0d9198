"""`python -m bench.pipeline.chaos [COUNT]`: every process of the pipeline is killed with -9, in turn, again and again,
while ten agents of one process record COUNT (100,000) episodes; then everything is counted. The kills are spread over
the episodes and not over time, so that a slow machine has as many. The last line is one JSON object.

Lost: in the agent's ledger and not in PostgreSQL and in the warehouse. Twice: in PostgreSQL, in the running totals, in
the history of rewards or in the warehouse more often than once. An episode whose recorder was killed between taking it
in charge and writing the ledger is there without being in the ledger: at most one of each agent for each of its kills.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import nats

from bench.arguments import numbers
from bench.pipeline.player import AGENTS
from bench.pipeline.world import pipeline
from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.connection import TRAJECTORIES
from learnloop_dataplane.warehouse import ClickHouse
from testing.servers.clickhouse_server import ClickHouseServer
from testing.servers.data_plane_process import Product
from testing.servers.ports import held_port

COUNT = 100_000
EPISODES_PER_KILL, LEAST_KILLS = 4000, 10
PAUSE_SECONDS = 2.0  # at least, between a process' return and the next kill: something is under way again
DOWN_SECONDS, LOOK_SECONDS = 0.5, 0.1
TELL_SECONDS = 15.0
SETTLE_SECONDS = 300.0
MOST_SHOWN = 100
POLICY = {
    "components": [{"name": "return", "type": "environment", "weight": 1}],
    "normalisation": {"method": "none"},
}
_COUNTS = """
SELECT (SELECT count(*) FROM trajectories) AS rows,
    (SELECT count(DISTINCT labels ->> 'number') FROM trajectories) AS numbers,
    (SELECT count(*) FROM training_transitions) AS transitions,
    (SELECT count(*) FROM trajectories WHERE reward IS NULL) AS unrewarded,
    (SELECT count(*) FROM trajectories WHERE NOT warehoused) AS unshipped,
    (SELECT count(*) FROM reward_history) AS rewards,
    (SELECT sum(trajectories)::bigint FROM agents) AS counted,
    (SELECT sum(rewarded)::bigint FROM agents) AS counted_rewards
"""


class Player:
    """The agent's process."""

    def __init__(self, count: int, directory: Path, url: str) -> None:
        self._command = [sys.executable, "-m", "bench.pipeline.player", str(count), str(directory), url]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Goes on where the ledger ends."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()

    @property
    def done(self) -> bool:
        """Everything was acknowledged."""
        return self._process is not None and self._process.poll() == 0


def torment(
    player: Player, victims: dict[str, Any], count: int, recorded: Callable[[], int], show: Callable[[str], None]
) -> Counter[str]:
    """Kills in turn until the player is done, each when its share of the episodes is recorded; returns how often each
    was."""
    kills: Counter[str] = Counter()
    names = list(victims)
    planned = max(LEAST_KILLS, count // EPISODES_PER_KILL)
    while True:
        number = kills.total()
        name, enough = names[number % len(names)], (number + 1) * count // (planned + 1)
        back = last = time.monotonic()
        while recorded() < enough or time.monotonic() - back < PAUSE_SECONDS or number >= planned:
            if player.done:
                return kills
            if time.monotonic() - last > TELL_SECONDS:
                last = time.monotonic()
                show(f"{number} kills")
            time.sleep(LOOK_SECONDS)
        victims[name].kill()
        kills[name] += 1
        time.sleep(DOWN_SECONDS)
        victims[name].start()
        show(f"{kills.total()} kills ({name})")


async def settled(dsn: str, url: str) -> dict[str, int]:
    """PostgreSQL's rows once nothing changes any more and NATS has nothing to deliver (again)."""
    deadline, before = time.monotonic() + SETTLE_SECONDS, None
    while True:
        connection = await asyncpg.connect(dsn)
        counts = dict(await connection.fetchrow(_COUNTS))
        await connection.close()
        waiting = counts["unrewarded"] + counts["unshipped"] + await undelivered(url)
        if (counts == before and not waiting) or time.monotonic() > deadline:
            return counts
        before = counts
        await asyncio.sleep(2)


async def undelivered(url: str) -> int:
    """Messages that the data plane has not acknowledged: those whose reader was killed come again after a while."""
    client = await nats.connect(url)
    consumer = await client.jetstream().consumer_info(TRAJECTORIES, STREAM_DURABLE)
    await client.close()
    return int(consumer.num_pending or 0) + int(consumer.num_ack_pending or 0)


async def missing(dsn: str, ledger: Sequence[str]) -> list[int]:
    """The places in the ledger, from 0, of the episodes that are not stored; with the kills they date the loss."""
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT labels ->> 'number' AS number FROM trajectories")
    await connection.close()
    stored = {row["number"] for row in rows}
    return [place for place, number in enumerate(ledger) if number not in stored]


async def warehoused(url: str) -> dict[str, int]:
    """Episodes of the warehouse, as a query counts them, and how many different ones they are."""
    warehouse = ClickHouse(url, days=365, timeout=60)
    everything: dict[str, Any] = {
        "since": datetime(2000, 1, 1, tzinfo=UTC),
        "until": datetime(2100, 1, 1, tzinfo=UTC),
        "before": "",
    }
    page = await warehouse.page("default", ["trajectory_id"], agents=None, size=10**7, **everything)
    await warehouse.close()
    return {"rows": len(page), "episodes": len({row["trajectory_id"] for row in page})}


def register(product: Product) -> None:
    """One reward policy, and the agents under it."""
    product.post("/api/v1/rewards/policies/p/revisions/r1", POLICY, "PUT")
    for number in range(AGENTS):
        body = {"reward_policy": "p", "reward_policy_revision": "r1"}
        product.post(f"/api/v1/agents/agent-{number}", body, "PUT")


def run(count: int) -> dict[str, Any]:
    """Everything once; the figures."""
    started = time.monotonic()

    def recorded() -> int:
        ledger = directory / "ledger"
        return ledger.read_bytes().count(b"\n") if ledger.exists() else 0

    def show(what: str) -> None:
        passed = time.monotonic() - started
        print(f"[chaos {passed:5.0f} s] {recorded():,} of {count:,} recorded, {what}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="learnloop-player-")))
        warehouse = ClickHouseServer(directory / "warehouse", stack.enter_context(held_port())).start()
        stack.callback(warehouse.kill)
        product, bus, database = stack.enter_context(pipeline(WAREHOUSE=warehouse.dsn))
        register(product)
        player = Player(count, directory, product.url)
        player.start()
        try:
            victims = {
                "data plane": product,
                "nats": bus,
                "warehouse": warehouse,
                "postgres": database,
                "agent": player,
            }
            kills = torment(player, victims, count, recorded, show)
            show("all delivered; counting when everything is rewarded and in the warehouse")
        finally:
            player.kill()
        lines = (directory / "ledger").read_text().split()
        ledger = set(lines)
        counts = asyncio.run(settled(database.dsn, bus.url))
        gone = asyncio.run(missing(database.dsn, lines))
        stored = asyncio.run(warehoused(warehouse.dsn))
    if gone:
        show(f"LOST, by their places in the ledger: {', '.join(map(str, gone[:MOST_SHOWN]))}")
    result = figures(count, kills, ledger, counts, len(gone) + counts["rows"] - stored["episodes"])
    result["counted_twice"] += stored["rows"] - stored["episodes"]
    return result | {"in_warehouse": stored["rows"], "seconds": round(time.monotonic() - started)}


def figures(count: int, kills: Counter[str], ledger: set[str], counts: dict[str, int], lost: int) -> dict[str, Any]:
    """The figures of these counts."""
    rows = counts["rows"]
    # An agent plays a number again when it was killed before the ledger had it: two episodes, each stored once.
    again = rows - counts["numbers"]
    twice = (
        max(0, again - AGENTS * kills["agent"])
        + max(0, counts["counted"] - rows)
        + max(0, counts["rewards"] - rows)
        + max(0, counts["counted_rewards"] - rows)
    )
    lost += max(0, rows - counts["counted"]) + max(0, rows - counts["transitions"]) + counts["unrewarded"]
    return {
        "trajectories": count,
        "recorded": len(ledger),
        "stored": rows,
        "kills": dict(kills),
        "processes_killed": len(kills),
        "lost": lost,
        "counted_twice": twice,
        "played_again_after_a_kill": again,
    }


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when something was lost or counted twice."""
    result = run(numbers(__doc__, arguments, count=COUNT).count)
    print(json.dumps({"bench": "chaos", **result}))
    return 1 if result["lost"] or result["counted_twice"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
