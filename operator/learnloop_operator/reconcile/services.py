"""Parts that controllers share: clients, clocks, settings, and statuses that were decided and not written yet."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from learnloop_common.cluster_clock import ClusterClock
from learnloop_operator.core.plan import Manifest
from learnloop_operator.data_plane import DataPlane, DataPlaneUnavailable
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.errors import InvalidSpec
from learnloop_operator.kube.fenced_client import without_none
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.rollout.evidence import EvidenceSource
from learnloop_operator.settings import Settings

REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class UnwrittenStatus:
    """The status that the next decision continues. `since`: when something first stayed unwritten."""

    status: dict[str, Any]
    since: datetime
    written: Any
    """The live status it goes on from."""


class UnwrittenStatuses:
    """One for each object at most."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, UnwrittenStatus] = OrderedDict()

    def of(self, live: Manifest) -> UnwrittenStatus | None:
        """The draft that goes on from the live status; None when there is none, or anybody has written since."""
        draft = self._kept.get(live["metadata"]["uid"])
        return draft if draft is not None and draft.written == live.get("status") else None

    def keep(self, live: Manifest, status: Manifest, now: datetime) -> None:
        """Remember a status that was not written; one that says what is written is none."""
        if without_none(status) == live.get("status"):
            self.drop(live)
            return
        before = self.of(live)
        uid = live["metadata"]["uid"]
        self._kept[uid] = UnwrittenStatus(dict(status), before.since if before else now, live.get("status"))
        self._kept.move_to_end(uid)
        while len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)

    def drop(self, live: Manifest) -> None:
        self._kept.pop(live["metadata"]["uid"], None)


M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


async def answer(question: Awaitable[T]) -> tuple[T | None, str]:
    """The data plane's answer, or the reason why there is none: a pass holds, and never fails for it."""
    try:
        return await question, ""
    except DataPlaneUnavailable as error:
        return None, str(error)


def read_spec(model: type[M], live: Mapping[str, Any]) -> M:
    """The spec of a live object.

    Raises:
        InvalidSpec: names the field, and goes into the object's status.
    """
    return _read(model, live, "spec")


def read_status(model: type[M], live: Mapping[str, Any]) -> M:
    """The status of a live object. What cannot be read is never taken for an empty one: that would forget a decision.

    Raises:
        InvalidSpec: names the field.
    """
    return _read(model, live, "status")


def _read(model: type[M], live: Mapping[str, Any], part: str) -> M:
    try:
        return model.model_validate(live.get(part) or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([part, *(str(step) for step in first["loc"])])
        raise InvalidSpec(f"{where}: {first['msg']}", live) from None


def utc_now() -> datetime:
    """The wall clock; the only place where it is read for decisions."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Services:
    """Clients and settings shared by all controllers of one process."""

    kube: Reader
    data_plane: DataPlane
    evidence: EvidenceSource
    settings: Settings
    lane: FastLaneReader
    drafts: UnwrittenStatuses = field(default_factory=UnwrittenStatuses)
    clock: Callable[[], datetime] = field(default=utc_now)
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)
    """The API server's, as its answers say."""

    def ahead(self) -> timedelta:
        return timedelta(seconds=self.cluster_clock.now() - time.time())
