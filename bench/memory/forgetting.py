"""The worth of the half that forgetting keeps, as a share of an oracle's that knows the needs to come.

`python -m bench.memory.forgetting` is this part alone; its last line is one JSON object.

Of 1,000 memories each is needed so and so often a month, few of them often. The oracle keeps the 500 that are needed
most; the clairvoyant knows the very draws, which is impossible (the oracle itself reaches 0.97 of that).
"""

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
from numpy.typing import NDArray

from bench.arguments import numbers
from bench.memory import load
from bench.memory.data import word
from bench.memory.filling import say
from testing.servers.data_plane_process import Product, postgres

API = "/api/v1/memory/"
CLIENTS = 8
MEMORIES, BUDGET = 1000, 500
Floats = NDArray[np.float64]
PAST = "UPDATE agent_memories SET created_at = now() - $2::interval WHERE id = $1"
LAST_USED = "UPDATE memory_use SET last_accessed = now() - $2::interval WHERE memory_id = $1"


@dataclass(frozen=True)
class Needs:
    """How 1,000 memories fared and will fare, as columns [1000].

    Attributes:
        need: how often each is needed a month, on average; `drawn` how often it will be.
        age, idle: days since it was stored, and since it was stored or last recalled.
        used, helped, hurt: how often it was recalled, and what came of it.
    """

    need: Floats
    drawn: Floats
    age: Floats
    idle: Floats
    importance: Floats
    used: Floats
    helped: Floats
    hurt: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Needs":
        """The store of a memory has a hint of how often it will be needed; a use helps in 60 % and hurts in 10 %."""
        need = rng.pareto(1.1, MEMORIES).clip(0, 40)
        age = rng.uniform(0, 60, MEMORIES)
        used = rng.poisson(need * age / 30)
        idle = np.where(used > 0, np.minimum(age, rng.exponential(30 / np.maximum(need, 0.1))), age)
        importance = np.clip(0.35 + 0.1 * np.log1p(need) + 0.15 * rng.standard_normal(MEMORIES), 0, 1)
        helped = rng.binomial(used, 0.6)
        hurt = rng.binomial(used - helped, 0.25)
        uses = (used.astype(float), helped.astype(float), hurt.astype(float))
        return cls(need, rng.poisson(need).astype(float), age, idle, importance, *uses)

    def shares(self, stays: Any) -> tuple[float, float, float]:
        """The shares of the oracle's and the clairvoyant's worth under these indices, and the newest half's shares."""
        oracle, clairvoyant = np.sort(self.need)[-BUDGET:].sum(), np.sort(self.drawn)[-BUDGET:].sum()
        newest = np.argsort(self.age)[:BUDGET]
        return (
            float(self.need[stays].sum() / oracle),
            float(self.drawn[stays].sum() / clairvoyant),
            float(self.need[newest].sum() / oracle),
        )


async def lived(product: Product, watcher: Any, seed: int = 13, runs: int = 2) -> dict[str, float]:
    """Through the API: stored with their importance, recalled and judged as often as they were needed, then given a
    budget of half. Only the past is written into the database, for no request can be of last month.

    Args:
        watcher: a connection as superuser.
        runs: agents, one after the other.
    """
    rng, figures = np.random.default_rng(seed), []
    for run in range(runs):
        agent, needs = f"bench-forgetting-{run}", Needs.draw(rng)
        ids = await _live(product, agent, needs, rng)
        for statement, days in ((PAST, needs.age), (LAST_USED, needs.idle)):
            ago = [(UUID(one), timedelta(days=days)) for one, days in zip(ids, days.tolist(), strict=True)]
            await watcher.executemany(statement, ago)
        left = await asyncio.to_thread(_left, product, agent)
        figures.append(needs.shares(np.flatnonzero([one in left for one in ids])))
    ours, draws, age_alone = np.mean(figures, axis=0)
    return {
        "forgetting_keeps_of_oracle": round(float(ours), 4),
        "forgetting_keeps_of_clairvoyant": round(float(draws), 4),
        "forgetting_by_age_keeps_of_oracle": round(float(age_alone), 4),
    }


async def _live(product: Product, agent: str, needs: Needs, rng: np.random.Generator) -> list[str]:
    """Stores, recalls each by its own words as often as it was used, and says what came of it. Ids in order."""
    texts = [" ".join(word(rng) for _ in range(8)) for _ in range(MEMORIES)]
    memories = [
        {"agent_id": agent, "memory_type": "episodic", "content": {"text": text}, "importance": importance}
        for text, importance in zip(texts, needs.importance.tolist(), strict=True)
    ]
    ids: list[str] = product.post(API + "store/batch", {"memories": memories})["ids"]
    uses = (column.astype(int).tolist() for column in (needs.used, needs.helped, needs.hurt))
    lives = iter(zip(ids, texts, *uses, strict=True))

    async def client() -> None:
        connection = await load.Connection().open(product.port)
        for identity, text, used, helped, hurt in lives:
            for number in range(used):
                answer = await _ask(connection, "retrieve", {"agent_id": agent, "context": text, "k": 1})
                if (first := answer["memories"][0]["id"]) != identity:
                    raise SystemExit(f"{text!r} recalled {first}, not {identity}")
                if number < helped + hurt:
                    helpful = [identity] if number < helped else []
                    feedback = {"retrieval_id": answer["retrieval_id"], "helpful": helpful}
                    await _ask(connection, "feedback", feedback)
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return ids


async def _ask(connection: load.Connection, what: str, body: dict[str, Any]) -> Any:
    while True:
        status, answer = await connection.send(load.post(API + what, json.dumps(body).encode()))
        if status == 200:
            return json.loads(answer)
        if status != 429:
            raise SystemExit(f"{what}: HTTP {status} {answer[:300]!r}")
        await asyncio.sleep(connection.retry_after)


def _left(product: Product, agent: str) -> set[str]:
    """The memories that are left under a budget of half."""
    path = f"/api/v1/agents/{agent}/memory-budget"
    product.post(path, {"memories": BUDGET}, "PUT")
    for _ in range(600):  # a minute
        if product.get(path)["memories"] == BUDGET:
            break
        time.sleep(0.1)
    page = product.get(f"{API}entries?agent_id={agent}&limit=500")
    return {row["id"] for row in page["memories"]}


def main() -> None:
    """Measures and prints the object."""
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE forgetting;")
        dsn = server.get_uri("forgetting")

        async def measure(product: Product) -> dict[str, float]:
            watcher = await asyncpg.connect(dsn)
            figures = await lived(product, watcher)
            await watcher.close()
            return figures

        say("living …")
        with Product(dsn, Path(server.pgdata), Path(directory)) as product:
            figures = asyncio.run(measure(product))
    print(json.dumps(figures))


if __name__ == "__main__":
    numbers(__doc__, sys.argv[1:])
    main()
