"""Shadow mode: stable mirrors its decisions, the arm in shadow answers them for no user and compares."""

import asyncio
import logging
import random
import threading
import time
import zlib
from collections import deque

import httpx
import numpy as np
import orjson
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.routing import MAX_ITEMS, Arm, ShadowBatch, ShadowDecision
from learnloop_common.acting.policy import Advice, Policy, PolicyError, advise
from learnloop_common.tls import client_context
from learnloop_serving import arm_choice, episode_ids, routing_table_in_force, server_metrics
from learnloop_serving.refusals import Refusal, invalid

log = logging.getLogger(__name__)
PATH = "/v1/shadow"
PURPOSE = b"shadow"
QUEUE_ITEMS = 1_024
QUEUE_NUMBERS = 1_048_576
BATCH_NUMBERS = 16_384
"""More numbers in one batch would hold up the event loop for longer than a policy takes."""
TIMEOUT_SECONDS = 1.0
POLL_SECONDS = 0.05
IDLE_SECONDS = 0.2
LONGEST_PAUSE = 2.0
Item = tuple[dict[str, object], int]
"""A decision, and how many numbers it holds."""


class MirrorQueue:
    """The queue and the task that empties it."""

    def __init__(
        self,
        revision: str,
        routing: routing_table_in_force.RoutingState,
        metrics: server_metrics.ShadowMetrics,
        seal: episode_ids.Seal,
    ) -> None:
        self._revision = revision
        self._routing = routing
        self._metrics = metrics
        self._seal = seal
        self._queue: deque[Item] = deque()
        self._numbers = 0
        self._lock = threading.Lock()  # a slow policy decides on a thread of its own

    @property
    def on(self) -> bool:
        """Does the table in force name an arm in shadow?"""
        return self._routing.table is not None and self._routing.table.mirror is not None

    def target(self, episode_id: str | None) -> Arm | None:
        """The arm that gets copies of this episode (None: of a request that knows no episodes), if any does."""
        table = self._routing.table
        if table is None or table.mirror is None:
            return None
        stable = arm_choice.stable_arm(table)
        if stable is None or stable.revision != self._revision:
            return None
        place = random.random() * 100 if episode_id is None else zlib.crc32(episode_id.encode()) % 100
        return table.mirrored(self._routing.clock.moment()) if place < table.mirror.percent else None

    def decided(self, episode_id: str | None, observation: list[float], greedy: int | list[float]) -> None:
        """Queue a copy of stable's decision, if its episode is copied."""
        target = self.target(episode_id)
        if target is None:
            return
        item: Item = {"observation": observation, "greedy": greedy}, len(observation)
        with self._lock:
            if len(self._queue) < QUEUE_ITEMS and self._numbers + item[1] <= QUEUE_NUMBERS:
                self._queue.append(item)
                self._numbers += item[1]
                return
        self._metrics.lost(target.revision, "full", 1)

    async def run(self) -> None:
        """Empty the queue until cancelled."""
        pause = POLL_SECONDS
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, verify=client_context()) as client:
            while True:
                target = self._receiver()
                if target is None:
                    self._forget()
                    await asyncio.sleep(IDLE_SECONDS)
                    continue
                batch = self._batch()
                if not batch:
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                lost = await self._send(client, target, batch)
                if lost:
                    self._metrics.lost(target.revision, lost, len(batch))
                    await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE) if lost else POLL_SECONDS

    def _receiver(self) -> Arm | None:
        table = self._routing.table
        return table.mirrored(self._routing.clock.moment()) if table else None

    def _forget(self) -> None:
        """Drop the queued copies: mirroring is over."""
        with self._lock:
            self._queue.clear()
            self._numbers = 0

    def _batch(self) -> list[Item]:
        batch: list[Item] = []
        numbers = 0
        with self._lock:
            while self._queue and len(batch) < MAX_ITEMS and numbers < BATCH_NUMBERS:
                item = self._queue.popleft()
                batch.append(item)
                numbers += item[1]
            self._numbers -= numbers
        return batch

    async def _send(self, client: httpx.AsyncClient, target: Arm, batch: list[Item]) -> str:
        """Hand the batch over; "" or why it was lost."""
        body = orjson.dumps({"revision": target.revision, "decisions": [decision for decision, _ in batch]})
        headers = {names.HEADER_MARK: self._seal.mark(PURPOSE, body)}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await client.post(f"{target.url}{PATH}", content=body, headers=headers)
        except Exception as error:  # neither a URL nor a connection in any state may end the copies
            log.debug("shadow %s: %r", target.revision, error)
            return "unreachable"
        return "" if answer.status_code == 202 else "refused"


class Shadow:
    """One server's share of the copies."""

    def __init__(
        self,
        revision: str,
        routing: routing_table_in_force.RoutingState,
        metrics: server_metrics.ShadowMetrics,
        seal: episode_ids.Seal,
    ) -> None:
        self._revision = revision
        self._routing = routing
        self._metrics = metrics
        self._seal = seal

    @property
    def on(self) -> bool:
        """Is this the arm in shadow? Then no user may get its answers."""
        table = self._routing.table
        return table is not None and table.mirror is not None and table.mirror.revision == self._revision

    def read(self, body: bytes, mark: str) -> ShadowBatch:
        """The copies of a POST /v1/shadow; raises Refusal 400, 403 when no server of this ModelDeployment sent them,
        and 410 when this arm is not the one in shadow."""
        if not self._seal.holds(PURPOSE, body, mark):
            self._metrics.unproven.inc()
            raise Refusal(403, "Unproven", f"{names.HEADER_MARK}: is not the mark of a server of this ModelDeployment")
        try:
            batch = ShadowBatch.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error
        if batch.revision != self._revision or not self.on:
            raise Refusal(410, "ArmWithdrawn", f"revision {batch.revision} is not in shadow at this server")
        return batch

    def take(self, policy: Policy, batch: ShadowBatch) -> None:
        """Run, compare and count every copy. Never raises for what the policy does."""
        if policy.memory:
            return  # a copy is one observation, without those before it: nothing that can be compared
        for decision in batch.decisions:
            self._decide(policy, decision)

    def _decide(self, policy: Policy, decision: ShadowDecision) -> None:
        start = time.perf_counter()
        try:
            advice = _advice(policy, decision.observation)
        except PolicyError:
            self._metrics.errors.inc()
            return
        self._metrics.observe(time.perf_counter() - start)
        self._metrics.compared.inc()
        if self._same(advice.action, decision.greedy):
            self._metrics.agreed.inc()

    def _same(self, own: int | list[float], stable: int | list[float]) -> bool:
        if isinstance(own, int) or isinstance(stable, int):
            return own == stable
        table = self._routing.table
        bound = table.mirror.max_distance if table and table.mirror else 0.0
        return len(own) == len(stable) and all(abs(a - b) <= bound for a, b in zip(own, stable, strict=True))


def _advice(policy: Policy, observation: list[float]) -> Advice:
    """Output of the policy's network for one observation; raises PolicyError."""
    if policy.observations is not None and len(observation) != policy.observations:
        raise PolicyError(f"observation has {len(observation)} numbers, the policy takes {policy.observations}")
    (advice,) = advise(policy, np.array([observation], dtype=np.float32))
    return advice
