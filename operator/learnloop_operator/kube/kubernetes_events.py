"""Events: written about objects of ours, and read for reasons that only events have."""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from learnloop_operator.core import plan, pod_trouble, times
from learnloop_operator.kube import cached_reads, errors, fenced_client, kinds, object_cache

log = logging.getLogger(__name__)

CONTROLLER = "learnloop.dev/operator"
REPEAT_SECONDS = 360.0
"""The same event is not sent again within this time (client-go's finishTime)."""
MAX_NOTE = 1024
PENDING = 1000
REMEMBERED = 5000


class _Noted(NamedTuple):
    regarding: plan.KubeObject
    notice: plan.Notice
    at: str


class EventRecorder:
    """`note` never blocks and never raises; `run` sends in the background."""

    def __init__(
        self, kube: fenced_client.KubeClient, instance: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube, self._instance, self._clock = kube, instance, clock
        self._queue: asyncio.Queue[_Noted] = asyncio.Queue(PENDING)
        self._sent: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def note(self, regarding: plan.KubeObject, notice: plan.Notice) -> None:
        """Record one event about an object; dropped when too many are pending."""
        try:
            self._queue.put_nowait(_Noted(regarding, notice, _micro_time()))
        except asyncio.QueueFull:
            log.info("event dropped (%d pending): %s %s", PENDING, notice.reason, notice.message)

    async def run(self) -> None:
        while True:
            noted = await self._queue.get()
            try:
                await self._send(noted)
            except errors.KubeError as error:
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

    async def _send(self, noted: _Noted) -> None:
        regarding, notice = noted.regarding, noted.notice
        metadata = regarding["metadata"]
        key = (str(metadata.get("uid")), notice.type, notice.reason, notice.message)
        now = self._clock()
        if now - self._sent.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        suffix = hashlib.sha256(f"{key}{time.time_ns()}".encode()).hexdigest()[:16]
        name = f"{metadata['name'][:200]}.{suffix}"
        await self._kube.create(self._event(noted, name))
        self._sent[key] = now
        self._sent.move_to_end(key)
        while len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    def _event(self, noted: _Noted, name: str) -> dict[str, Any]:
        regarding, notice = noted.regarding, noted.notice
        metadata = regarding["metadata"]
        return {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.kind,
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


PATIENCE_SECONDS = 15.0
"""Making a container takes a moment; its events are asked for only after that."""
MOST = 3
"""Pods asked about in one pass: the first sentence is enough."""


async def failure_of(kube: cached_reads.Reader, namespace: str, uid: str) -> str:
    """The newest warning of a reason `Failed…` about the object `uid`; "" where there is none or it cannot be read.

    Never raises: a sentence that is missing stops nothing.
    """
    return await _newest_failure(kube, namespace, f"regarding.uid={uid}", None)


async def failure_of_job(kube: cached_reads.Reader, namespace: str, name: str, since: datetime) -> str:
    """The same about a Job (batch/v1) of this name: what was said from `since` on, for its name may be an old one's."""
    return await _newest_failure(kube, namespace, f"regarding.kind={kinds.JOB.kind},regarding.name={name}", since)


async def _newest_failure(kube: cached_reads.Reader, namespace: str, regarding: str, since: datetime | None) -> str:
    try:
        events = await kube.list(kinds.EVENT, namespace, fields=f"{regarding},type=Warning")
    except errors.KubeError as error:
        log.debug("events of %s not read: %s", regarding, error)
        return ""
    failures = [item for item in events if str(item.get("reason", "")).startswith("Failed") and _new(item, since)]
    newest = max(failures, key=_moment, default=None)
    return str(newest.get("note") or "").removeprefix("Error creating: ")[: pod_trouble.LONGEST] if newest else ""


async def with_events(
    kube: cached_reads.Reader, namespace: str, pods: Sequence[object_cache.Object], now: datetime
) -> list[object_cache.Object]:
    """The pods; those that are being made for longer than usual with what their events say."""
    late = [pod for pod in pods if _is_late(pod, now)][:MOST]
    if not late:
        return list(pods)
    message = await asyncio.gather(*(failure_of(kube, namespace, pod["metadata"]["uid"]) for pod in late))
    sentence = {pod["metadata"]["uid"]: text for pod, text in zip(late, message, strict=True) if text}
    return [_add(pod, sentence.get(pod["metadata"]["uid"], "")) for pod in pods]


def _is_late(pod: object_cache.Object, now: datetime) -> bool:
    status, made = pod.get("status") or {}, times.parse(pod["metadata"].get("creationTimestamp"))
    creating = status.get("phase") == "Pending" and not pod_trouble.held_up(status)
    creating = creating and pod_trouble.step_of(status) in ("ContainerCreating", "PodInitializing")
    return creating and made is not None and (now - made).total_seconds() > PATIENCE_SECONDS


def _add(pod: object_cache.Object, text: str) -> object_cache.Object:
    return {**pod, "status": {**(pod.get("status") or {}), pod_trouble.EVENT_MESSAGE: text}} if text else pod


def _new(event: object_cache.Object, since: datetime | None) -> bool:
    text = times.parse(_moment(event))
    return since is None or (text is not None and text >= since)


def _moment(event: object_cache.Object) -> str:
    series = event.get("series") or {}
    result = series.get("lastObservedTime") or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    return str(result or event["metadata"].get("creationTimestamp") or "")
