"""Parts that controllers share: clients, clocks and settings, and how they read a live object."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from learnloop_common.cluster_clock import ClusterClock
from learnloop_operator.data_plane import DataPlane, DataPlaneUnavailable
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.errors import InvalidSpec
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.rollout.evidence import EvidenceSource
from learnloop_operator.settings import Settings

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
    clock: Callable[[], datetime] = field(default=utc_now)
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)
    """The API server's, as its answers say."""

    def ahead(self) -> timedelta:
        return timedelta(seconds=self.cluster_clock.now() - time.time())
