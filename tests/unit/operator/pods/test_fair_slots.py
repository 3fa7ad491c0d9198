"""Slots shared between tenants."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.prometheus.pod_counters import FairSlots


class Tenants:
    """Who asked for slots of one FairShare; each holds what it got until it gives it back."""

    def __init__(self, slots: int) -> None:
        self.share, self.held = FairSlots(slots), Counter[str]()
        self.back: dict[asyncio.Task[None], asyncio.Event] = {}
        self.holding: list[tuple[str, asyncio.Task[None]]] = []

    async def hold(self, tenant: str, back: asyncio.Event) -> None:
        async with self.share.slot(tenant):
            self.held[tenant] += 1
            task = asyncio.current_task()
            assert task is not None
            self.holding.append((tenant, task))
            try:
                await back.wait()
            finally:
                self.held[tenant] -= 1
                self.holding.remove((tenant, task))

    async def ask(self, tenant: str) -> None:
        back = asyncio.Event()
        self.back[asyncio.create_task(self.hold(tenant, back))] = back
        await self.settle()

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for back in self.back.values():
            back.set()
        await asyncio.gather(*self.back, return_exceptions=True)


async def test_one_tenant_takes_half_and_the_next_half_of_the_rest() -> None:
    tenants = Tenants(64)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tenants.end)
        for tenant in ("a", "b", "c"):
            for _ in range(100):
                await tenants.ask(tenant)
        assert tenants.held == {"a": 32, "b": 16, "c": 8}


@given(acts=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["ask", "leave", "cancel"])), max_size=80))
def test_no_slot_is_lost_or_lent_twice_and_nobody_without_one_waits_beside_a_free_one(
    acts: list[tuple[str, str]],
) -> None:
    async def play() -> None:
        tenants = Tenants(6)
        for tenant, act in acts:
            tasks = list(tenants.back)
            if act == "ask":
                await tenants.ask(tenant)
            elif act == "cancel" and tasks:
                tasks[ord(tenant) % len(tasks)].cancel()
            elif mine := [task for whose, task in tenants.holding if whose == tenant]:
                tenants.back[mine[0]].set()
            await tenants.settle()
            assert sum(tenants.held.values()) <= 6
            waiting = sum(not task.done() for task in tenants.back) - len(tenants.holding)
            assert not waiting or tenants.holding, "whoever waits, waits for somebody"
        await tenants.end()
        for index in range(6):
            await tenants.ask(str(index))
        assert sum(tenants.held.values()) == 6, "every slot is there again"
        await tenants.end()

    asyncio.run(play())
