"""events.k8s.io/v1 recorder: repeats become a series, floods are cut off, and warnings go first."""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.core.plan import Manifest, Notice
from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.errors import KubeError, NotFound
from learnloop_operator.kube.kinds import EVENT

log = logging.getLogger(__name__)

CONTROLLER = "learnloop.dev/operator"
SERIES_SECONDS = 360.0
"""A repeat within this time extends the series; later it is a new event (client-go's finishTime)."""
BURST, REFILL_SECONDS = 25, 5.0
"""Per object: a burst of 25, then one each 5 s."""
MAX_NOTE = 1024
PENDING = 1000
REMEMBERED = 5000


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    last: float


@dataclass(frozen=True, slots=True, order=True)
class _Noted:
    order: tuple[bool, int]
    """Warnings first, then as they came."""
    regarding: Manifest = field(compare=False)
    notice: Notice = field(compare=False)
    at: str = field(compare=False)


class EventRecorder:
    """`note` never blocks and never raises; `run` sends in the background."""

    def __init__(self, kube: KubeClient, instance: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._instance, self._clock = kube, instance, clock
        self._queue: asyncio.PriorityQueue[_Noted] = asyncio.PriorityQueue(PENDING)
        self._noted = 0
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def note(self, regarding: Manifest, notice: Notice) -> None:
        """Record one event about an object; dropped when too many are pending or the object is too loud."""
        if not self._allowed(str(regarding["metadata"].get("uid", ""))):
            log.debug("event dropped (rate): %s %s", notice.reason, notice.message)
            return
        self._noted += 1
        try:
            self._queue.put_nowait(_Noted((notice.type != "Warning", self._noted), regarding, notice, _micro_time()))
        except asyncio.QueueFull:
            log.info("event dropped (%d pending): %s %s", PENDING, notice.reason, notice.message)

    async def run(self) -> None:
        """Send what is noted, until cancelled."""
        while True:
            noted = await self._queue.get()
            try:
                await self._send(noted)
            except KubeError as error:
                log.warning("event not recorded: %s", error)
            except Exception:  # a pass must not fail because of an event
                log.exception("event not recorded")
            finally:
                self._queue.task_done()

    async def drain(self, seconds: float) -> None:
        """Wait until everything noted is sent, at most `seconds`."""
        try:
            await asyncio.wait_for(self._queue.join(), seconds)
        except TimeoutError:
            log.warning("events left unsent: %d", self._queue.qsize())

    def _allowed(self, uid: str) -> bool:
        now = self._clock()
        tokens, then = self._tokens.pop(uid, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - then) / REFILL_SECONDS)
        allowed = tokens >= 1.0
        self._tokens[uid] = (tokens - 1.0 if allowed else tokens, now)
        while len(self._tokens) > REMEMBERED:
            self._tokens.popitem(last=False)
        return allowed

    async def _send(self, noted: _Noted) -> None:
        regarding, notice = noted.regarding, noted.notice
        metadata = regarding["metadata"]
        key = (str(metadata.get("uid")), notice.type, notice.reason, notice.message)
        series, now = self._series.get(key), self._clock()
        if series is not None and now - series.last < SERIES_SECONDS:
            series.count, series.last = series.count + 1, now
            body = {"series": {"count": series.count, "lastObservedTime": noted.at}}
            try:
                await self._kube.patch(EVENT, metadata["namespace"], series.name, body)
                return
            except NotFound:
                pass  # expired in the API server: begin a new one
        suffix = hashlib.sha256(f"{key}{time.time_ns()}".encode()).hexdigest()[:16]
        name = f"{metadata['name'][:200]}.{suffix}"
        await self._kube.create(self._event(noted, name))
        self._series[key] = _Series(name, 1, now)
        self._series.move_to_end(key)
        while len(self._series) > REMEMBERED:
            self._series.popitem(last=False)

    def _event(self, noted: _Noted, name: str) -> dict[str, Any]:
        regarding, notice = noted.regarding, noted.notice
        metadata = regarding["metadata"]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "eventTime": noted.at,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:128],
            "action": "Reconcile",
            "reason": notice.reason[:128],
            "type": notice.type,
            "note": notice.message if len(notice.message) <= MAX_NOTE else notice.message[: MAX_NOTE - 1] + "…",
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata.get("uid"),
                "resourceVersion": metadata.get("resourceVersion"),
            },
        }


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
