"""Episodes a second of each namespace: a token bucket of ten seconds' worth (RFC 2697 without the excess burst)."""

import math
import time
from collections.abc import Callable

from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.quota_limits import Quotas

BURST_SECONDS = 10.0
KNOWN = 10_000
"""Namespaces that are remembered; the one that was quiet longest is full again anyway."""


class EpisodeRate:
    """What each namespace may still send now, at this replica."""

    def __init__(self, quotas: Quotas, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas, self._metrics, self._clock = quotas, metrics, clock
        self._left: dict[str, tuple[float, float]] = {}

    def admit(self, namespace: str) -> None:
        """Counts one episode.

        Raises:
            ApiError: 429, there were too many in the last seconds.
        """
        limit = self._quotas.of(namespace).episodes_per_second
        if limit is None:
            return
        now, most = self._clock(), max(1.0, limit * BURST_SECONDS)
        left, since = self._left.pop(namespace, (most, now))
        left = min(most, left + (now - since) * limit)
        allowed = left >= 1
        while len(self._left) >= KNOWN:
            del self._left[next(iter(self._left))]
        self._left[namespace] = (left - 1 if allowed else left, now)
        if not allowed:
            self._metrics.over_quota(namespace, "episodes")
            raise ApiError(
                429,
                f"namespace {namespace} sends more than {limit:g} episodes a second "
                "(dataPlane.quotas.episodesPerSecond of the chart); send it again later, or ask for more",
                retry_after=max(1, math.ceil((1 - left) / limit)),
            )
