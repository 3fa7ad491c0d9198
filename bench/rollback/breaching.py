"""The same trial for every side: users who play, and one breach of a canary after the other."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.rollback.figures import Breach
from bench.rollback.rig import NAMESPACE, run
from bench.rollback.traffic import Traffic
from bench.rollback.weights import Weights


async def _at_once() -> None:
    """The next release may come as it is."""


@dataclass(frozen=True)
class Canary:
    """One deployment of one side.

    Attributes:
        side: who rolls it out, as it is printed.
        weight: percent of the canary.
        calm_seconds: a breach begins up to so long after the canary got its weight.
        patience_seconds: until its weight has to be 0.
        release: brings out release so and so.
        has_weight, has_none: what the cluster says of it.
        settled: returns when the next release may come.
    """

    side: str
    name: str
    weight: int
    calm_seconds: float
    patience_seconds: float
    release: Callable[[int], object]
    has_weight: Callable[[], bool]
    has_none: Callable[[], bool]
    settled: Callable[[], Awaitable[None]] = _at_once


async def breaches(canary: Canary, weights: Weights, traffic: Traffic, rounds: int, records: list[Breach]) -> None:
    """`rounds` times: a release, half the requests of the canary fail, and seconds until its weight is 0."""
    for release in range(1, rounds + 1):
        await asyncio.to_thread(canary.release, release)
        await weights.until(canary.has_weight, 180, f"{canary.name}: {canary.weight} % for a canary")
        await asyncio.sleep(random.uniform(0.0, canary.calm_seconds))
        traffic.breach()
        done = await weights.until(
            lambda: traffic.first_failure is not None and canary.has_none(),
            canary.patience_seconds,
            f"{canary.name}: weight 0",
        )
        records.append(traffic.over(done))
        print(f"  {canary.side:<10} {canary.name} release {release}: {records[-1]}", flush=True)
        await canary.settled()


@asynccontextmanager
async def playing(users: Sequence[Traffic]) -> AsyncIterator[None]:
    """All of them send requests for the time of the block."""
    tasks = [asyncio.create_task(one.run()) for one in users]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def in_phase(kubectl: list[str], resource: str, phase: str) -> None:
    """Waits until its controller has said so."""
    wait = [f"--for=jsonpath={{.status.phase}}={phase}", "--timeout=170s", resource]
    await asyncio.to_thread(run, [*kubectl, "wait", "-n", NAMESPACE, *wait])
