"""Evidence for a rollout out of Prometheus: one query for all counters of a window, one for latency if asked for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from learnloop_api import names
from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.adapters.prometheus import Prometheus, PrometheusError, Sample
from learnloop_operator.core.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.core.rollout.windows import Window

_FINISHED = ("success", "failure", "error")
_SIGNAL = "learnloop_signal"


async def gather(
    prometheus: Prometheus, namespace: str, name: str, windows: Sequence[Window], metrics: Sequence[MetricThreshold]
) -> Evidence:
    """Evidence of every window's arm. Never raises: what cannot be had is said in the evidence itself."""
    if not windows:
        return Evidence()
    by_seconds: dict[int, list[str]] = {}
    for window in windows:
        by_seconds.setdefault(window.seconds, []).append(window.revision)
    latency = any(metric.type == "latency" for metric in metrics)
    try:
        parts = await asyncio.gather(
            *(
                _window(prometheus, namespace, name, revisions, seconds, latency)
                for seconds, revisions in by_seconds.items()
            )
        )
        arms = {revision: arm for part in parts for revision, arm in part.items()}
        return Evidence(await _with_custom(prometheus, namespace, windows, metrics, arms))
    except PrometheusError as error:
        return Evidence(unavailable=str(error))


def counters_query(namespace: str, name: str, revisions: Sequence[str], seconds: int) -> str:
    """All counters of the arms over the window in one vector, told apart by the label `learnloop_signal`.

    `increase` copes with pods that restart (counter resets) and extrapolates by at most one scrape, but it takes the
    first sample for the beginning. A pod that was born in the window has begun at 0, and may well have finished a
    dozen episodes before its first scrape: its counters count as they stand.
    """
    select = _select(namespace, name, revisions)

    def part(signal: str, by: str, metric: str) -> str:
        series = f"{metric}{{{select}}}"
        born = f"last_over_time({series}[{seconds}s]) unless {series} offset {seconds}s"
        total = f"sum by ({by}) (({born}) or increase({series}[{seconds}s]))"
        return f'label_replace({total}, "{_SIGNAL}", "{signal}", "", "")'

    seen = f"min by (revision) (timestamp({names.METRIC_EPISODES_ENDED}{{{select}}}))"
    return " or ".join(
        (
            part("ended", "revision, outcome", names.METRIC_EPISODES_ENDED),
            part("gain", "revision", names.METRIC_EPISODE_RETURN_GAIN),
            part("loss", "revision", names.METRIC_EPISODE_RETURN_LOSS),
            f'label_replace({seen}, "{_SIGNAL}", "seen", "", "")',
        )
    )


def latency_query(namespace: str, name: str, revisions: Sequence[str], seconds: int) -> str:
    """99th percentile of a policy request in seconds, by revision; acting only, which is what users wait for."""
    select = _select(namespace, name, revisions) + ', verb=~"act|infer"'
    buckets = f"sum by (revision, le) (increase({names.METRIC_REQUEST_SECONDS}_bucket{{{select}}}[{seconds}s]))"
    return f"histogram_quantile(0.99, {buckets})"


def arm_evidence(samples: Sequence[Sample]) -> dict[str, ArmEvidence]:
    """Evidence by revision from the answer to `counters_query`.

    The mean return is over all ended episodes, for the returns of all of them are in the sums; episodes that were
    cut off with a withdrawn arm count for nothing else.
    """
    ended: dict[str, dict[str, float]] = {}
    total: dict[str, float] = {}
    seen: dict[str, datetime] = {}
    for sample in samples:
        revision, signal = sample.labels.get("revision", ""), sample.labels.get(_SIGNAL)
        if signal == "ended":
            ended.setdefault(revision, {})[sample.labels.get("outcome", "")] = max(0.0, sample.value)
        elif signal in ("gain", "loss"):
            total[revision] = total.get(revision, 0.0) + (sample.value if signal == "gain" else -sample.value)
        elif signal == "seen":
            seen[revision] = datetime.fromtimestamp(sample.value, UTC)
    return {
        revision: replace(_arm(outcomes, total.get(revision)), seen_at=seen.get(revision))
        for revision, outcomes in ended.items()
    }


def _arm(outcomes: Mapping[str, float], total: float | None) -> ArmEvidence:
    finished = sum(outcomes.get(outcome, 0.0) for outcome in _FINISHED)
    if finished <= 0:
        return ArmEvidence()
    return ArmEvidence(
        episodes=int(finished + 1e-6),
        mean_return=None if total is None else total / sum(outcomes.values()),
        success_rate=outcomes.get("success", 0.0) / finished,
        error_rate=outcomes.get("error", 0.0) / finished,
    )


async def _window(
    prometheus: Prometheus, namespace: str, name: str, revisions: Sequence[str], seconds: int, latency: bool
) -> dict[str, ArmEvidence]:
    counters = prometheus.query(counters_query(namespace, name, revisions, seconds))
    if not latency:
        return arm_evidence(await counters)
    samples, seconds_by_arm = await asyncio.gather(
        counters, prometheus.query(latency_query(namespace, name, revisions, seconds))
    )
    p99 = {sample.labels.get("revision", ""): sample.value for sample in seconds_by_arm}
    return {revision: replace(arm, p99_seconds=p99.get(revision)) for revision, arm in arm_evidence(samples).items()}


async def _with_custom(
    prometheus: Prometheus,
    namespace: str,
    windows: Sequence[Window],
    metrics: Sequence[MetricThreshold],
    arms: Mapping[str, ArmEvidence],
) -> dict[str, ArmEvidence]:
    """`arms` with the answers to the user's own queries; one that fails holds its own check only."""
    result = dict(arms)
    for metric in metrics:
        if metric.type != "promql":
            continue
        for window in windows:
            arm = result.get(window.revision)
            if arm is None:
                continue
            value, problem = await _one_number(prometheus, custom_query(metric, namespace, window.revision))
            if value is None:
                result[window.revision] = replace(arm, problems={**arm.problems, metric.name: problem})
            else:
                result[window.revision] = replace(arm, custom={**arm.custom, metric.name: value})
    return result


def custom_query(metric: MetricThreshold, namespace: str, revision: str) -> str:
    """The user's query with $revision and $namespace filled in."""
    return (metric.query or "").replace("$revision", revision).replace("$namespace", namespace)


async def _one_number(prometheus: Prometheus, query: str) -> tuple[float | None, str]:
    if not query.strip():
        return None, "the check has no query"
    try:
        samples = await prometheus.query(query)
    except PrometheusError as error:
        return None, str(error)
    if len(samples) != 1:
        return None, f"the query gave {len(samples)} finite numbers, it must give one"
    return samples[0].value, ""


def _select(namespace: str, name: str, revisions: Sequence[str]) -> str:
    arms = "|".join(sorted(set(revisions)))
    return f'namespace="{namespace}", model_deployment="{name}", revision=~"{arms}"'
