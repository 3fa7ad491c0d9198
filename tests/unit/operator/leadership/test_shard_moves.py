"""Namespaces move between shards whose number changes, whose processes stop, die or stand still: never two that may
write, and, where all processes agree, soon one that does."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from learnloop_api import names
from learnloop_operator.adapters.kube.errors import Conflict
from learnloop_operator.adapters.leadership.leader_lease import FENCE_SECONDS, LEASE_SECONDS, OVER_SECONDS, Leadership
from learnloop_operator.adapters.leadership.namespace_claims import CHECK_SECONDS, ClaimedElsewhere, NamespaceClaims
from learnloop_operator.adapters.leadership.sibling_shards import SiblingShards
from learnloop_operator.core.coordination.shards import Shard

SYSTEM, NAME = "system", "op"
TEAMS = [f"team-{number}" for number in range(12)]
MOST = 3
TICK = 2.0


class Store:
    """The Leases of a cluster, each write checked by its version."""

    def __init__(self) -> None:
        self.leases: dict[tuple[str, str], Any] = {}
        self.version = 0

    async def find(self, _kind: Any, namespace: str, name: str) -> Any:
        return self.leases.get((namespace, name))

    get = find

    async def create(self, manifest: Any) -> Any:
        if _place(manifest) in self.leases:
            raise Conflict("it is there")
        return self._keep(manifest)

    async def replace(self, manifest: Any) -> Any:
        before = self.leases.get(_place(manifest))
        if before is None or before["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise Conflict("somebody wrote in between")
        return self._keep(manifest)

    def _keep(self, manifest: Any) -> Any:
        self.version += 1
        kept = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.version)}}
        self.leases[_place(manifest)] = kept
        return kept


def _place(manifest: Any) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


class Process:
    """One operator: its Lease and its claims, as `Operator` wires them."""

    def __init__(self, store: Store, clock: Any, shard: Shard, number: int) -> None:
        self.shard, self.clock, self.stopped, self.still = shard, clock, False, False
        said = {names.ANNOTATION_SHARDS: str(shard.count)}
        kube: Any = store
        own = shard.lease(NAME)
        self.leadership = Leadership(kube, SYSTEM, own, f"p{number}", clock=clock, annotations=said)
        siblings = SiblingShards(kube, SYSTEM, NAME, shard)
        self.claims = NamespaceClaims(kube, siblings.installation, clock=clock, siblings=siblings)

    async def turn(self) -> None:
        """What it does every few seconds."""
        if self.stopped or self.still:
            return
        self.leadership.beat()
        if not await self.leadership.attempt():
            return
        for team in filter(self.shard.owns, TEAMS):
            try:
                await self.claims.hold(team)
            except ClaimedElsewhere:
                continue
            if self.claims._age(team) >= 45:
                await self.claims._look_after(team, lambda _: None)

    def may_write(self, team: str) -> bool:
        """A write of it may be under way, also where the process stands still in the middle of one."""
        over = self.leadership._held_until + OVER_SECONDS - FENCE_SECONDS
        holder = self.claims._holders.get(team)
        return self.clock() < over and holder is not None and holder.held and self.shard.owns(team)


class World:
    """All processes on one clock."""

    def __init__(self) -> None:
        self.now, self.store, self.made = 0.0, Store(), 0
        self.processes: list[Process] = []

    def start(self, index: int, count: int) -> None:
        self.made += 1
        self.processes.append(Process(self.store, lambda: self.now, Shard(index, count), self.made))

    async def end(self, process: Process) -> None:
        await process.leadership.release()
        process.stopped = True

    async def turn(self, seconds: float, order: random.Random) -> None:
        self.now += seconds
        for process in order.sample(self.processes, len(self.processes)):
            await process.turn()
            self.check()

    def writers(self, team: str) -> list[Process]:
        return [process for process in self.processes if process.may_write(team)]

    def check(self) -> None:
        for team in TEAMS:
            found = self.writers(team)
            assert len({id(process) for process in found}) <= 1, f"{team}: {[p.shard for p in found]} may write"


class Moves(RuleBasedStateMachine):
    """Anybody may start, stop, die, stand still and go on, with whatever number of shards, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.order = World(), random.Random(0)

    @initialize(count=st.integers(1, MOST))
    def begun(self, count: int) -> None:
        for index in range(count):
            self.world.start(index, count)
        run(self.world.turn(TICK, self.order))

    @rule(count=st.integers(1, MOST), data=st.data())
    def start(self, count: int, data: st.DataObject) -> None:
        if len(self.world.processes) < 9:
            self.world.start(data.draw(st.integers(0, count - 1)), count)

    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        if self.world.processes:
            run(self.world.end(data.draw(st.sampled_from(self.world.processes))))

    @rule(data=st.data())
    def stand_still_or_go_on(self, data: st.DataObject) -> None:
        if self.world.processes:
            process = data.draw(st.sampled_from(self.world.processes))
            process.still = not process.still

    @rule(seconds=st.sampled_from([0.0, 0.5, TICK, CHECK_SECONDS, FENCE_SECONDS, LEASE_SECONDS, 50.0]))
    def time_passes(self, seconds: float) -> None:
        run(self.world.turn(seconds, self.order))

    @invariant()
    def nobody_decides_twice(self) -> None:
        self.world.check()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


async def test_over_a_hundred_moves_each_namespace_has_a_decider_again_within_seconds() -> None:
    world, order, count = World(), random.Random(7), 1
    world.start(0, 1)
    await world.turn(TICK, order)
    moved, longest = 0, 0.0
    while moved < 100:
        before = {team: world.writers(team)[0].shard.index for team in TEAMS}
        new = order.choice([number for number in range(1, MOST + 1) if number != count])
        old, world.processes = world.processes, [*world.processes]
        for index in range(new):  # a rolling update: the new ones stand by, then the old ones are ended, one by one
            world.start(index, new)
        since = world.now
        for process in order.sample(old, len(old)):
            await world.end(process)
            await world.turn(order.uniform(0.1, 3), order)
        since = world.now
        while any(not world.writers(team) for team in TEAMS):
            await world.turn(TICK, order)
            assert world.now - since < 20, "a gap"
        longest = max(longest, world.now - since)
        world.processes = [process for process in world.processes if not process.stopped]
        after = {team: world.writers(team)[0].shard.index for team in TEAMS}
        assert all(Shard(index, new).owns(team) for team, index in after.items())
        moved += sum(before[team] != after[team] for team in TEAMS)
        count = new
    assert longest <= CHECK_SECONDS + 2 * TICK
