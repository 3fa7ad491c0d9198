"""events.k8s.io/v1 recorder: repeats become a series, floods are cut off, and no pass ever fails because of it.

An event costs the API server a third of what a status costs, and a status says the same. So in a flood of changes
events of type Normal go slowly and let the passes have the API server; warnings never wait for them.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
AT_ONCE, PER_SECOND = 100, 10.0
"""Normal events of all objects: 100 without a pause, then ten a second."""
PENDING = 1000
REMEMBERED = 5000


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    last: float


@dataclass(frozen=True, slots=True)
class _Noted:
    regarding: Manifest
    notice: Notice
    at: str


class EventRecorder:
    """`note` never blocks and never raises; `run` sends in the background."""

    def __init__(self, kube: KubeClient, instance: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._instance, self._clock = kube, instance, clock
        self._warnings: asyncio.Queue[_Noted] = asyncio.Queue(PENDING)
        self._normal: asyncio.Queue[_Noted] = asyncio.Queue(PENDING)
        self._hurry = asyncio.Event()
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def note(self, regarding: Manifest, notice: Notice) -> None:
        """Record one event about an object; dropped when too many are pending or the object is too loud."""
        if not self._allowed(str(regarding["metadata"].get("uid", ""))):
            log.debug("event dropped (rate): %s %s", notice.reason, notice.message)
            return
        queue = self._warnings if notice.type == "Warning" else self._normal
        try:
            queue.put_nowait(_Noted(regarding, notice, _micro_time()))
        except asyncio.QueueFull:
            log.info("event dropped (%d pending): %s %s", PENDING, notice.reason, notice.message)

    async def run(self) -> None:
        """Send what is noted, until cancelled."""
        await asyncio.gather(self._run(self._warnings, paced=False), self._run(self._normal, paced=True))

    async def _run(self, queue: asyncio.Queue[_Noted], *, paced: bool) -> None:
        tokens, then = float(AT_ONCE), self._clock()
        while True:
            noted = await queue.get()
            now = self._clock()
            tokens, then = min(float(AT_ONCE), tokens + (now - then) * PER_SECOND) - paced, now
            try:
                if tokens < 0:
                    await self._pause(-tokens / PER_SECOND)
                await self._send(noted)
            except KubeError as error:
                log.warning("event not recorded: %s", error)
            except Exception:  # a pass must not fail because of an event
                log.exception("event not recorded")
            finally:
                queue.task_done()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)

    async def drain(self, seconds: float) -> None:
        """Wait until everything noted is sent, without pauses, at most `seconds`."""
        self._hurry.set()
        try:
            await asyncio.wait_for(asyncio.gather(self._warnings.join(), self._normal.join()), seconds)
        except TimeoutError:
            log.warning("events left unsent: %d", self._warnings.qsize() + self._normal.qsize())
        finally:
            self._hurry.clear()

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
