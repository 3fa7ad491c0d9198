"""One leader at a time, and the proof that its watches are awake."""

import asyncio
import copy
from typing import Any

import pytest

from learnloop_operator.kube.errors import Conflict, NotFound, NotLeading, Unavailable
from learnloop_operator.kube.leader_lease import DEADLINE_SECONDS, LEASE_SECONDS, Leadership


def lease_kube(wire_lease: dict):
    class Fake:
        async def get(self, *_):
            if wire_lease.get("broken"):
                raise Unavailable("no answer")
            if "lease" not in wire_lease:
                raise NotFound("no such Lease")
            lease = copy.deepcopy(wire_lease["lease"])
            await asyncio.sleep(0)
            return lease

        async def create(self, manifest):
            return keep(manifest, 1)

        async def replace(self, manifest):
            before = wire_lease["lease"]["metadata"]["resourceVersion"]
            if before != manifest["metadata"]["resourceVersion"]:
                raise Conflict("somebody wrote in between")
            return keep(manifest, int(before) + 1)

    def keep(manifest, version: int):
        wire_lease["lease"] = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(version)}}
        return copy.deepcopy(wire_lease["lease"])

    return Fake()


def candidates(*identities: str):
    """The store of the API server, the clock, and the candidates themselves."""
    store, clock = dict[str, Any](), [0.0]
    return store, clock, *(Leadership(lease_kube(store), "ns", "l", one, clock=lambda: clock[0]) for one in identities)


async def test_a_standby_takes_over_only_after_a_whole_lease_of_silence_by_its_own_clock() -> None:
    _, clock, first, second = candidates("one", "two")
    assert await first.attempt()
    assert not await second.attempt()
    clock[0] = LEASE_SECONDS - 0.1
    assert not await second.attempt()
    clock[0] = LEASE_SECONDS + 0.1
    assert await second.attempt()
    assert not await first.attempt()


async def test_a_leader_that_cannot_renew_stops_writing_before_a_standby_may_start() -> None:
    store, clock, leader = candidates("one")
    await leader.attempt()
    store["broken"] = True
    clock[0] = DEADLINE_SECONDS - 0.1
    assert not await leader.attempt()
    leader.guard()
    clock[0] = DEADLINE_SECONDS
    with pytest.raises(NotLeading):
        leader.guard()
    assert DEADLINE_SECONDS < LEASE_SECONDS


async def test_a_renewal_counts_from_its_request() -> None:
    clock, kube = [0.0], lease_kube({})
    answer = kube.create

    async def late(manifest):
        clock[0] += DEADLINE_SECONDS
        return await answer(manifest)

    kube.create = late
    leader = Leadership(kube, "ns", "l", "one", clock=lambda: clock[0])
    await leader.attempt()
    assert not leader.held


@pytest.mark.parametrize("holder", ["two", ""])
async def test_a_leader_that_was_replaced_ends_although_the_lease_may_be_free_again(monkeypatch, holder):
    monkeypatch.setattr("learnloop_operator.kube.leader_lease.RETRY_SECONDS", 0.0)
    store, _, first = candidates("one")
    running = asyncio.create_task(first.run())
    await first.acquired.wait()
    before = store["lease"]
    metadata = {**before["metadata"], "resourceVersion": "77"}
    store["lease"] = {"metadata": metadata, "spec": {**before["spec"], "holderIdentity": holder}}
    await asyncio.wait_for(running, 60)
    assert not first.held
    assert store["lease"]["spec"]["holderIdentity"] == holder


async def test_a_leader_that_could_not_renew_before_its_deadline_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_operator.kube.leader_lease.RETRY_SECONDS", 0.0)
    store, clock, leader = candidates("one")
    running = asyncio.create_task(leader.run())
    await leader.acquired.wait()
    store["broken"] = True
    clock[0] = DEADLINE_SECONDS
    await asyncio.wait_for(running, 60)
    assert not leader.held


async def test_of_two_that_take_a_free_lease_one_wins() -> None:
    _, _, first, second = candidates("one", "two")
    await first.attempt()
    await first.release()
    assert sorted(await asyncio.gather(first.attempt(), second.attempt())) == [False, True]
    assert first.held != second.held


async def test_a_released_lease_is_taken_at_once() -> None:
    _, _, first, second = candidates("one", "two")
    await first.attempt()
    await second.attempt()
    await first.release()
    assert not first.held
    assert await second.attempt()
