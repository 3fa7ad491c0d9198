"""Evidence of an arm in shadow from Prometheus: one query for all of it."""

import math
from collections.abc import Sequence

from learnloop_api import names
from learnloop_operator.prometheus.client import Prometheus, PrometheusError, Sample
from learnloop_operator.prometheus.gather_evidence import reason_of
from learnloop_operator.prometheus.parse_answers import clock_of, moment
from learnloop_operator.prometheus.queries import SIGNAL, Arms, gap, grown, labelled
from learnloop_operator.rollout.evidence import Evidence, ShadowEvidence

_COUNTERS = {
    "compared": names.METRIC_SHADOW_COMPARED,
    "agreed": names.METRIC_SHADOW_AGREED,
    "errors": names.METRIC_SHADOW_ERRORS,
}


async def gather_shadow(prometheus: Prometheus, arms: Arms, seconds: int) -> Evidence:
    """Evidence of the one arm of `arms`. Never raises: what cannot be had is said in the evidence itself."""
    try:
        samples = await prometheus.query(shadow_query(arms, seconds))
    except PrometheusError as error:
        return Evidence(unavailable=str(error), reason=reason_of(error))
    return Evidence(shadow=shadow_evidence(samples), clock=clock_of(samples))


def shadow_query(arms: Arms, seconds: int) -> str:
    """All counters of the arm over the window in one vector, told apart by the label `learnloop_signal`.

    As for episodes, the counters of a pod that was born in the window count as they stand. Lost copies are counted by
    stable's pods, under the revision that never got them.
    """
    (revision,) = arms.revisions
    arm, anyones = arms.of(revision), arms.of(revision, by="")
    buckets = f"{names.METRIC_SHADOW_SECONDS}_bucket"
    parts = [
        *(grown(signal, "revision", metric, arm, seconds) for signal, metric in _COUNTERS.items()),
        grown("lost", "revision", names.METRIC_SHADOW_LOST, anyones, seconds, processes=arms.processes()),
        grown("within", "revision, le", buckets, arm, seconds),
        gap(arm, seconds),
        labelled("seen", f"min by (revision) (timestamp({names.METRIC_SHADOW_COMPARED}{{{arm}}}))"),
        labelled("clock", "vector(time())"),
    ]
    return " or ".join(parts)


def shadow_evidence(samples: Sequence[Sample]) -> ShadowEvidence | None:
    """The answer to `shadow_query`; None when the arm has reported nothing at all."""
    sums: dict[str, float] = {}
    within: dict[float, float] = {}
    seen_at, broken = None, ""
    for sample in samples:
        signal = sample.labels.get(SIGNAL, "")
        if signal in ("seen", "clock"):
            seen_at = moment(sample.value) if signal == "seen" else seen_at
        elif not math.isfinite(sample.value):
            broken = f"Prometheus answers {sample.value} for its {signal} counter"
        elif signal == "within":
            within[_bound(sample.labels.get("le", ""))] = max(0.0, sample.value)
        else:
            sums[signal] = max(0.0, sample.value)
    if broken:
        return ShadowEvidence(seen_at=seen_at, broken=broken)
    if "compared" not in sums:
        return None
    return ShadowEvidence(
        compared=sums["compared"],
        agreed=min(sums.get("agreed", 0.0), sums["compared"]),
        errors=sums.get("errors", 0.0),
        lost=sums.get("lost", 0.0),
        within=within,
        seen_at=seen_at,
        gap=round(sums.get("gap", 0.0)),
    )


def _bound(text: str) -> float:
    """The bound of a histogram bucket in seconds, `+Inf` included; one that is not a number bounds nothing."""
    try:
        return float(text)
    except ValueError:
        return math.inf
