"""What every controller is given."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from learnloop_common.cluster_clock import ClusterClock
from learnloop_operator.data_plane import DataPlane
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.reconcile.unwritten_statuses import UnwrittenStatuses
from learnloop_operator.rollout.evidence.source import EvidenceSource
from learnloop_operator.settings import Settings


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
    cache: ObjectCache | None = None
    drafts: UnwrittenStatuses = field(default_factory=UnwrittenStatuses)
    clock: Callable[[], datetime] = field(default=utc_now)
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)
    """The API server's, as its answers say."""

    def ahead(self) -> timedelta:
        """How far the API server's clock is ahead of ours."""
        return timedelta(seconds=self.cluster_clock.now() - time.time())
