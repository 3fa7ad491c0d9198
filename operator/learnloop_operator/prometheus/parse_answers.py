"""Evidence of each arm from Prometheus' answers. Values that are not finite never count."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.queries import SIGNAL
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import ArmEvidence, Missing, Openings
from learnloop_operator.statistics.latency import Histogram

_FINISHED = ("success", "failure", "error")


@dataclass(slots=True)
class _Sums:
    """Sums of one arm so far."""

    ended: dict[str, float] = field(default_factory=dict)
    gained: float | None = None
    seen_at: datetime | None = None
    lately: float | None = None
    gap: float = 0.0
    opened: dict[str, float] = field(default_factory=dict)
    """What became of opened episodes, by signal."""
    broken: str = ""


def arm_evidence(samples: Sequence[Sample]) -> dict[str, ArmEvidence]:
    """Evidence by revision from the answer to `counters_query`.

    Episodes that a person or a limit touched, or that were cut off with a withdrawn arm, have ended and count for
    nothing else: the servers do not sum their returns.
    """
    arms: dict[str, _Sums] = {}
    for sample in samples:
        if revision := sample.labels.get("revision", ""):
            _add(arms.setdefault(revision, _Sums()), sample)
    lasted = histograms(samples, "lasted")
    return {
        revision: _arm(sums, lasted.get(revision, {})) for revision, sums in arms.items() if sums.ended or sums.broken
    }


def clock_of(samples: Iterable[Sample]) -> datetime | None:
    """Prometheus' own clock in the answer to `counters_query`."""
    return next((moment(item.value) for item in samples if item.labels.get(SIGNAL) == "clock"), None)


def histograms(samples: Iterable[Sample], signal: str) -> dict[str, Histogram]:
    """Cumulative counts by revision and bound. A bucket without a finite count is left out."""
    result: dict[str, dict[float, float]] = {}
    for sample in samples:
        bound = _bound(sample.labels.get("le"))
        if sample.labels.get(SIGNAL) == signal and bound is not None and math.isfinite(sample.value):
            result.setdefault(sample.labels.get("revision", ""), {})[bound] = max(0.0, sample.value)
    return {revision: _rising(counts) for revision, counts in result.items()}


def _add(sums: _Sums, sample: Sample) -> None:
    signal, value = sample.labels.get(SIGNAL), sample.value
    if not math.isfinite(value):
        sums.broken = f"Prometheus answers {value} for its {signal} counter"
    elif signal == "ended":
        sums.ended[sample.labels.get("outcome", "")] = max(0.0, value)
    elif signal in ("gain", "loss"):
        sums.gained = (sums.gained or 0.0) + (value if signal == "gain" else -value)
    elif signal == "seen":
        sums.seen_at = moment(value)
    elif signal == "lately":
        sums.lately = value
    elif signal == "gap":
        sums.gap = value
    elif signal in ("opened", "due", "in_time"):
        sums.opened[signal] = max(0.0, value)
    elif signal == "young":  # each bucket is a lower bound of the same number
        sums.opened[signal] = max(sums.opened.get(signal, 0.0), value)


def _arm(sums: _Sums, lasted: Histogram) -> ArmEvidence:
    finished = sum(sums.ended.get(outcome, 0.0) for outcome in _FINISHED)
    lately = None if sums.lately is None else round(sums.lately)
    bare = ArmEvidence(seen_at=sums.seen_at, lately=lately, gap=round(sums.gap), openings=_openings(sums, lasted))
    if finished <= 0:
        return bare
    counted = replace(bare, episodes=int(finished + 1e-6))
    if sums.broken:
        return replace(counted, problems={"": Missing(reasons.NOT_A_NUMBER, sums.broken)})
    return replace(
        counted,
        mean_return=None if sums.gained is None else sums.gained / finished,
        success_rate=sums.ended.get("success", 0.0) / finished,
        error_rate=sums.ended.get("error", 0.0) / finished,
    )


def _openings(sums: _Sums, lasted: Histogram) -> Openings | None:
    previous, closed = sums.opened, sum(sums.ended.values())
    if "opened" not in previous or sums.broken:
        return None
    young = min(closed, previous.get("young", 0.0))
    return Openings(previous["opened"], previous.get("due", 0.0), closed, previous.get("in_time"), young, lasted)


def moment(value: float) -> datetime | None:
    """Unix time as a moment; None where it is none."""
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _bound(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _rising(counts: Mapping[float, float]) -> Histogram:
    """Extrapolated one by one, buckets may fall by a hair; cumulative counts never do."""
    most, result = 0.0, {}
    for bound in sorted(counts):
        most = max(most, counts[bound])
        result[bound] = most
    return result
