"""Reasons that only events have: why a controller cannot make its pods, why a pod's volumes are missing."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime

from learnloop_operator.core import times
from learnloop_operator.core.pod_trouble import LONGEST, TOLD_BY_EVENTS, held_up, step_of
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kinds import EVENT, JOB
from learnloop_operator.kube.object_cache import Object

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 15.0
"""Making a container takes a moment; its events are asked for only after that."""
MOST = 3
"""Pods asked about in one pass: the first sentence is enough."""


async def failure_of(kube: Reader, namespace: str, uid: str) -> str:
    """The newest warning of a reason `Failed…` about the object `uid`; "" where there is none or it cannot be read.

    Never raises: a sentence that is missing stops nothing.
    """
    return await _newest_failure(kube, namespace, f"regarding.uid={uid}", None)


async def failure_of_job(kube: Reader, namespace: str, name: str, since: datetime) -> str:
    """The same about a Job (batch/v1) of this name: what was said from `since` on, for its name may be an old one's."""
    return await _newest_failure(kube, namespace, f"regarding.kind={JOB.kind},regarding.name={name}", since)


async def _newest_failure(kube: Reader, namespace: str, regarding: str, since: datetime | None) -> str:
    try:
        events = await kube.list(EVENT, namespace, fields=f"{regarding},type=Warning")
    except KubeError as error:
        log.debug("events of %s not read: %s", regarding, error)
        return ""
    failures = [item for item in events if str(item.get("reason", "")).startswith("Failed") and _new(item, since)]
    newest = max(failures, key=_moment, default=None)
    return str(newest.get("note") or "").removeprefix("Error creating: ")[:LONGEST] if newest else ""


async def with_events(kube: Reader, namespace: str, pods: Sequence[Object], now: datetime) -> list[Object]:
    """The pods; those that are being made for longer than usual with what their events say."""
    late = [pod for pod in pods if _is_late(pod, now)][:MOST]
    if not late:
        return list(pods)
    message = await asyncio.gather(*(failure_of(kube, namespace, pod["metadata"]["uid"]) for pod in late))
    sentence = {pod["metadata"]["uid"]: text for pod, text in zip(late, message, strict=True) if text}
    return [_add(pod, sentence.get(pod["metadata"]["uid"], "")) for pod in pods]


def _is_late(pod: Object, now: datetime) -> bool:
    status, made = pod.get("status") or {}, times.parse(pod["metadata"].get("creationTimestamp"))
    creating = status.get("phase") == "Pending" and not held_up(status)
    creating = creating and step_of(status) in ("ContainerCreating", "PodInitializing")
    return creating and made is not None and (now - made).total_seconds() > PATIENCE_SECONDS


def _add(pod: Object, text: str) -> Object:
    return {**pod, "status": {**(pod.get("status") or {}), TOLD_BY_EVENTS: text}} if text else pod


def _new(event: Object, since: datetime | None) -> bool:
    text = times.parse(_moment(event))
    return since is None or (text is not None and text >= since)


def _moment(event: Object) -> str:
    series = event.get("series") or {}
    result = series.get("lastObservedTime") or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    return str(result or event["metadata"].get("creationTimestamp") or "")
