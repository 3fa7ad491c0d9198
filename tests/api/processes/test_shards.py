"""Two whole operator processes, two shards of one installation: a namespace moves in mid-rollout, and nobody decides
beside the other."""

import asyncio
import signal
import uuid
from pathlib import Path
from typing import Any

from learnloop_api import names
from learnloop_operator.adapters.kube.kinds import LEASE
from learnloop_operator.adapters.leadership.namespace_claims import NAME
from learnloop_operator.core.coordination.shards import shard_of
from testing.operators.operator_processes import LEASE_NAME, TICK, LiveWorld, live_world

HASTY = {"leadership.namespace_claims.CHECK_SECONDS": 0.5}


def _of_the_second() -> str:
    """A namespace that moves when one shard becomes two."""
    return next(name for name in iter(lambda: f"moved-{uuid.uuid4().hex[:10]}", "") if shard_of(name, 2) == 1)


async def _there(world: LiveWorld, namespace: str, name: str) -> dict[str, Any]:
    while True:
        lease = await world.user.find(LEASE, namespace, name)
        if lease is not None:
            return lease
        await asyncio.sleep(TICK)


async def test_a_namespace_moves_to_a_new_shard_when_the_old_one_divides_too(api_server: Path, tmp_path: Path) -> None:
    async with live_world(api_server, tmp_path, namespace=_of_the_second()) as world:
        first = await world.operator(hasty=HASTY)
        await _there(world, world.namespace, NAME)
        second = await world.operator(hasty=HASTY, beside=first, shard="1/2")
        await world.serves(0)
        lease = await _there(world, first.system, f"{LEASE_NAME}-1")
        assert lease["metadata"]["annotations"][names.ANNOTATION_SHARDS] == "2"
        await world.wish(1)
        before = (await world.until("a canary", lambda status: bool(status.get("weight"))))["weight"]
        assert second.proxy.writes == [], "the first one divides by one: all is its own"
        assert await second.ask("/readyz") == "ok", "a hand-over is nothing that people must mend"

        first.shard = "0/2"
        assert first.process is not None
        first.process.send_signal(signal.SIGTERM)
        await world.until("a writer", lambda _: bool(second.proxy.writes))
        written = len(first.proxy.writes)
        await world.until("more of it", lambda now: now.get("weight", 0) > before or now["phase"] == "Healthy")
        assert first.codes == [0]
        assert len(first.proxy.writes) == written, "the first one wrote after the second"
        claim = await world.user.get(LEASE, world.namespace, NAME)
        assert claim["spec"]["holderIdentity"] == f"{first.system}/{LEASE_NAME}-1"
        generations = [table.generation for table in world.tables]
        assert generations == sorted(set(generations)), "a routing table came back"
