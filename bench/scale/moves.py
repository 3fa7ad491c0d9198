"""Namespaces that move between two shards, there and back, while their ModelDeployments are edited.

Operators are whole processes, each behind a door of its own, where a witness notes which statuses the API server took
from it. One shard becomes two and two become one, as `helm upgrade` does it: the new processes start, then the old ones
are asked to end. In each namespace that moves, one object is edited shortly before the old process is told to end and
again shortly after.
"""

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import quantiles

from bench.operator import world
from bench.operator.api import Api
from bench.operator.failover import Process, begun, until
from bench.operator.observer import Observer
from bench.operator.thousand import say
from bench.operator.witness import Witness, twice_decided_of_each, witness
from bench.scale.fleet import TEAMS_OWN
from learnloop_operator.adapters.kube import kubeconfig
from learnloop_operator.adapters.kube.kinds import LEASE, MODEL_DEPLOYMENT
from learnloop_operator.adapters.leadership.namespace_claims import NAME
from learnloop_operator.core.coordination.shards import shard_of

EDITED_SECONDS = 0.5
"""Before or after the old process is told to end."""
END_SECONDS = 60.0


class Shards:
    """The processes that there are, by shard; one operator alone has the shard ""."""

    def __init__(self, seen: Witness, folder: Path, extra: Mapping[str, str]) -> None:
        self._seen, self._folder, self._extra = seen, folder, extra
        self._current: list[Process] = []
        self._number = 0
        self.leaving = asyncio.Event()

    async def begin(self) -> None:
        """One operator, which has decided something."""
        self._current = [await self._start("")]
        await until(self._current[0].works, "the first operator never led", self._current[0].starved)

    async def become(self, *shards: str) -> None:
        """Start these, wait until they watch; `leaving` is then set, and soon after those that were there before are
        told to end. Returns when they have."""
        new = [await self._start(shard) for shard in shards]
        for process in new:
            await until(process.ready, "a new shard never watched", process.starved)
        old, self._current = self._current, new
        self.leaving.set()
        await asyncio.sleep(EDITED_SECONDS)
        self.leaving.clear()
        for process in old:
            process.process.send_signal(signal.SIGTERM)
        for process in old:
            await asyncio.to_thread(process.process.wait, END_SECONDS)

    def kill(self) -> None:
        """Nothing of them is left."""
        for process in self._current:
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()

    async def _start(self, shard: str) -> Process:
        self._number += 1
        name = f"operator-{self._number}-of-{shard.replace('/', '-') or 'all'}"
        return await begun(name, self._seen, self._folder, {**self._extra, "LEARNLOOP_SHARD": shard})


async def measure(
    kubeconfig_file: Path, api: Api, observer: Observer, url: str, moves: int, seed: int = 1
) -> dict[str, float]:
    """At least so many moves; `observer` watches the ModelDeployments.

    Raises:
        TimeoutError: an edit was never decided about.
    """
    extra = {"LEARNLOOP_DATA_URL": url, "LEARNLOOP_SYSTEM_NAMESPACE": "default"}
    moments, waits, done, edits = random.Random(seed), list[float](), 0, 0
    teams = sorted(name[1] for name in observer.generations if name[2] == TEAMS_OWN)
    moving = [namespace for namespace in teams if shard_of(namespace, 2)]
    if not moving:
        raise ValueError(f"no namespace of {len(teams)} belongs to a second shard: take more agents")
    with tempfile.TemporaryDirectory(prefix="learnloop-shards-") as folder:
        async with witness(kubeconfig.from_kubeconfig(kubeconfig_file)) as seen:
            shards = Shards(seen, Path(folder), extra)
            try:
                await shards.begin()
                await _settled(observer)
                divided = False
                while done < moves:
                    before = await _holders(api, moving)
                    edits += 2 * len(moving)
                    observer.forget_waits()
                    divided = not divided
                    async with asyncio.TaskGroup() as group:
                        group.create_task(shards.become(*(("0/2", "1/2") if divided else ("",))))
                        await shards.leaving.wait()
                        for namespace in moving:
                            group.create_task(_edit_twice(api, namespace, TEAMS_OWN, moments, edits))
                    await _settled(observer)
                    after = await _holders(api, moving)
                    moved = sum(before[namespace] != after[namespace] for namespace in moving)
                    if not moved:
                        raise RuntimeError(f"no claim changed hands: {sorted(set(after.values()))}")
                    done += moved
                    waits += [end - begin for begin, end in observer.edit_spans.values()]
                    say(f"{done} of {moves} moves; the longest wait of an edit was {max(waits):.1f} s")
            finally:
                shards.kill()
            landed = list(seen.landed)
    return {
        "moves": done,
        "move_edits": edits,
        "move_wait_p50_s": round(quantiles(waits, n=100, method="inclusive")[49], 2),
        "move_wait_max_s": round(max(waits), 2),
        "generations_decided": len({(item.object, item.generation) for item in landed}),
        "two_decisions_for_one_generation": len(twice_decided_of_each(landed)),
    }


async def _edit_twice(api: Api, namespace: str, name: str, moments: random.Random, number: int) -> None:
    """Once before the old process is told to end, once while it ends or just has."""
    early, late = moments.uniform(0.0, EDITED_SECONDS), moments.uniform(EDITED_SECONDS, 2 * EDITED_SECONDS)
    await asyncio.sleep(early)
    await api.merge(MODEL_DEPLOYMENT, namespace, name, world.edit(number))
    await asyncio.sleep(late - early)
    await api.merge(MODEL_DEPLOYMENT, namespace, name, world.edit(number + 1))


async def _settled(observer: Observer) -> None:
    await observer.all_current(0, seconds=600.0)
    quiet = time.monotonic()
    while time.monotonic() - quiet < 1.0:
        await asyncio.sleep(0.1)
        if observer.behind:
            await observer.all_current(0, seconds=600.0)
            quiet = time.monotonic()


async def _holders(api: Api, namespaces: list[str]) -> dict[str, str]:
    return {
        namespace: (await api.call("GET", LEASE.path(namespace, NAME)))["spec"]["holderIdentity"]
        for namespace in namespaces
    }
