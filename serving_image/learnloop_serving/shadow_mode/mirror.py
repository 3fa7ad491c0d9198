"""Stable's side of shadow mode: copies of its decisions go to the arm in shadow, and never in a user's way.

A request only appends to a bounded queue; when that is full the copy is dropped and counted. One task empties it in
batches with a short time-out. A dead, slow or hostile receiver costs copies, never answers.
"""

import asyncio
import logging
import random
import threading
import zlib
from collections import deque
from datetime import UTC, datetime

import httpx
import orjson

from learnloop_api import names
from learnloop_api.wire.routing import Arm
from learnloop_api.wire.shadow import MAX_ITEMS
from learnloop_common.tls.contexts import client_context
from learnloop_serving.arms.arm_draw import stable_arm
from learnloop_serving.arms.routing_table import RoutingState
from learnloop_serving.arms.server_seal import Seal
from learnloop_serving.shadow_mode.shadow_metrics import ShadowMetrics

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
Item = tuple[str, dict[str, object], int]
"""("decisions" or "endings", the message, how many numbers it holds)"""


class MirrorQueue:
    """The queue and the task that empties it."""

    def __init__(self, revision: str, routing: RoutingState, metrics: ShadowMetrics, seal: Seal) -> None:
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
        stable = stable_arm(table)
        if stable is None or stable.revision != self._revision:
            return None
        place = random.random() * 100 if episode_id is None else zlib.crc32(episode_id.encode()) % 100
        return table.mirrored(datetime.now(UTC)) if place < table.mirror.percent else None

    def decided(
        self,
        episode_id: str | None,
        observation: list[float],
        greedy: int | list[float],
        action: int | list[float] | None = None,
        log_prob: float | None = None,
    ) -> None:
        """Stable has decided; `action` and `log_prob` only when it drew."""
        target = self.target(episode_id)
        if target is None:
            return
        message: dict[str, object] = {"observation": observation, "greedy": greedy}
        for key, value in (("episode_id", episode_id), ("action", action), ("log_prob", log_prob)):
            if value is not None:
                message[key] = value
        self._put(target, ("decisions", message, len(observation)))

    def ended(self, episode_id: str, status: str, episode_return: float, length: int) -> None:
        """An episode of stable's has ended."""
        target = self.target(episode_id)
        if target is not None:
            end = {"episode_id": episode_id, "status": status, "episode_return": episode_return, "length": length}
            self._put(target, ("endings", end, 1))

    def _put(self, target: Arm, item: Item) -> None:
        with self._lock:
            if len(self._queue) < QUEUE_ITEMS and self._numbers + item[2] <= QUEUE_NUMBERS:
                self._queue.append(item)
                self._numbers += item[2]
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
        return table.mirrored(datetime.now(UTC)) if table else None

    def _forget(self) -> None:
        """Mirroring is over: copies still queued are for nobody."""
        with self._lock:
            self._queue.clear()
            self._numbers = 0

    def _batch(self) -> list[Item]:
        """The oldest copies; an ending is queued after all decisions of its episode, so it never overtakes one."""
        batch: list[Item] = []
        numbers = 0
        with self._lock:
            while self._queue and len(batch) < MAX_ITEMS and numbers < BATCH_NUMBERS:
                item = self._queue.popleft()
                batch.append(item)
                numbers += item[2]
            self._numbers -= numbers
        return batch

    async def _send(self, client: httpx.AsyncClient, target: Arm, batch: list[Item]) -> str:
        """Hand the batch over; "" or why it was lost."""
        said: dict[str, object] = {"revision": target.revision}
        for kind in ("decisions", "endings"):
            said[kind] = [message for what, message, _ in batch if what == kind]
        body = orjson.dumps(said)
        headers = {names.HEADER_MARK: self._seal.mark(PURPOSE, body)}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await client.post(f"{target.url}{PATH}", content=body, headers=headers)
        except Exception as error:  # neither a URL nor a connection in any state may end the copies
            log.debug("shadow %s: %r", target.revision, error)
            return "unreachable"
        return "" if answer.status_code == 202 else "refused"
