"""Sources of evidence: Prometheus for arms with episodes and in shadow, the data plane for rewards and opinions."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.wire.deployment import RevisionOutcomes
from learnloop_operator.data_plane_client import DataPlane, DataPlaneUnavailable
from learnloop_operator.prometheus.client import (
    Prometheus,
    PrometheusBadAnswer,
    PrometheusError,
    PrometheusRefused,
    Sample,
)
from learnloop_operator.prometheus.queries import (
    SIGNAL,
    Arms,
    arm_evidence,
    clock_of,
    counters_query,
    gap,
    grown,
    histograms,
    labelled,
    latency_query,
    moment,
    own_pods,
)
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.metric_types import type_of
from learnloop_operator.rollout.evidence import (
    POD_LABEL,
    ArmEvidence,
    Evidence,
    EvidenceRequest,
    EvidenceSource,
    ExtraSeries,
    Missing,
    ShadowEvidence,
    Window,
)
from learnloop_operator.statistics.e_values import Counts

NOBODY_ANSWERS = "no server answers queries of ModelDeployments: set prometheus.queries.url to a prom-label-proxy"


async def gather(
    prometheus: Prometheus, request: EvidenceRequest, queries: Prometheus | None = None, pod_label: str = POD_LABEL
) -> Evidence:
    """Evidence of every window's arm. Never raises: what cannot be had is said in the evidence itself.

    `queries`: answers the user's own queries, from the series of the namespace.
    """
    if not request.windows:
        return Evidence()
    latencies = [metric.name for metric in request.metrics if type_of(metric).extra_series is ExtraSeries.LATENCY]
    try:
        counted = await _counters(prometheus, request, pod_label)
        arms = {revision: arm for samples in counted for revision, arm in arm_evidence(samples).items()}
        if latencies:
            arms = await _with_latency(prometheus, _by_seconds(request, pod_label), arms, latencies)
        arms = await _with_custom(queries, request, arms)
    except PrometheusError as error:
        return Evidence(unavailable=str(error), reason=reason_of(error))
    return Evidence(arms, clock=next(filter(None, map(clock_of, counted)), None))


def _by_seconds(request: EvidenceRequest, pod_label: str) -> list[tuple[Arms, int]]:
    """The arms that are asked about the same number of seconds, and these."""
    return [
        (Arms(request.namespace, request.name, revisions, pod_label), seconds)
        for seconds, revisions in request.by_seconds().items()
    ]


async def _counters(prometheus: Prometheus, request: EvidenceRequest, pod_label: str) -> list[list[Sample]]:
    extra = request.lately_seconds, request.deadline_seconds
    queries = (counters_query(arms, seconds, *extra) for arms, seconds in _by_seconds(request, pod_label))
    return list(await asyncio.gather(*map(prometheus.query, queries)))


async def _with_latency(
    prometheus: Prometheus,
    wanted: Iterable[tuple[Arms, int]],
    arms: Mapping[str, ArmEvidence],
    metrics: Sequence[str],
) -> dict[str, ArmEvidence]:
    """`arms` with their histograms. Buckets that are not numbers are left out; `metrics` that lack them say why."""
    queries = (latency_query(*each) for each in wanted)
    matches = await asyncio.gather(*map(prometheus.query, queries))
    previous = {revision: one for samples in matches for revision, one in histograms(samples, "latency").items()}
    broken = {one.labels.get("revision"): one.value for rows in matches for one in rows if not math.isfinite(one.value)}
    result = {}
    for revision, arm in arms.items():
        problems = dict(arm.problems)
        if revision in broken:
            text = f"Prometheus answers {broken[revision]} for its latency counter"
            problems |= dict.fromkeys(metrics, Missing(reasons.NOT_A_NUMBER, text))
        result[revision] = replace(arm, latency=previous.get(revision, {}), problems=problems)
    return result


async def _with_custom(
    queries: Prometheus | None, request: EvidenceRequest, arms: Mapping[str, ArmEvidence]
) -> dict[str, ArmEvidence]:
    """`arms` with the answers to the user's own queries; one that fails holds its own check only."""
    wanted = [
        (metric, window.revision, _filled_in(metric.query or "", request, window))
        for metric in request.metrics
        for window in request.windows
        if metric.type == "promql" and window.revision in arms
    ]
    answers = await _answers(queries, request.namespace, {text for _, _, text in wanted})
    result = dict(arms)
    for metric, revision, text in wanted:
        arm, answer = result[revision], answers[text]
        if isinstance(answer, Missing):
            result[revision] = replace(arm, problems={**arm.problems, metric.name: answer})
        else:
            result[revision] = replace(arm, custom={**arm.custom, metric.name: answer})
    return result


def _filled_in(query: str, request: EvidenceRequest, window: Window) -> str:
    """The user's query as Prometheus gets it."""
    query = query.replace("$revision", window.revision).replace("$namespace", request.namespace)
    return query.replace("$window", f"{window.seconds}s").replace("$pods", own_pods(request.name, window.revision))


async def _answers(prometheus: Prometheus | None, namespace: str, queries: set[str]) -> dict[str, float | Missing]:
    """Each query's one number, all asked at the same time: the client's time limit is that of all."""
    if prometheus is None:
        return dict.fromkeys(queries, Missing(reasons.PROVIDER_DOWN, NOBODY_ANSWERS))
    answers = await asyncio.gather(*(_one_number(prometheus, namespace, query) for query in queries))
    return dict(zip(queries, answers, strict=True))


async def _one_number(prometheus: Prometheus, namespace: str, query: str) -> float | Missing:
    if not query.strip():
        return Missing(reasons.EMPTY_RESULT, "the check has no query")
    try:
        samples = await prometheus.query(query, namespace)
    except PrometheusError as error:
        return Missing(reason_of(error), str(error))
    if not samples:
        return Missing(reasons.EMPTY_RESULT, "the query gave no number, it must give one")
    if len(samples) > 1:
        return Missing(reasons.AMBIGUOUS_RESULT, f"the query gave {len(samples)} numbers, it must give one: use sum()")
    value = samples[0].value
    return value if math.isfinite(value) else Missing(reasons.NOT_A_NUMBER, f"the query gave {value}")


def reason_of(error: PrometheusError) -> str:
    """Reason of a missing answer."""
    if isinstance(error, PrometheusRefused):
        return reasons.PROVIDER_REFUSED
    return reasons.PROVIDER_BAD_ANSWER if isinstance(error, PrometheusBadAnswer) else reasons.PROVIDER_DOWN


# Evidence of an arm in shadow: one query for all of it.


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
        _openings(arms, seconds),
        gap(arm, seconds),
        labelled("scraped", f"min by (revision) (timestamp({names.METRIC_SHADOW_COMPARED}{{{arm}}}))"),
        labelled("clock", "vector(time())"),
    ]
    return " or ".join(parts)


def _openings(arms: Arms, seconds: int) -> str:
    """Episodes that were opened over the window, whichever arm got them; no series where none was ever opened."""
    opened, everyone = names.METRIC_EPISODES_OPENED, arms.processes()
    counted = grown("episodes", "model_deployment", opened, everyone, seconds, processes=everyone)
    return f"{counted} and on (model_deployment) sum by (model_deployment) ({opened}{{{everyone}}}) > 0"


def shadow_evidence(samples: Sequence[Sample]) -> ShadowEvidence | None:
    """The answer to `shadow_query`; None when the arm has reported nothing at all."""
    sums: dict[str, float] = {}
    scraped_at, broken = None, ""
    for sample in samples:
        signal = sample.labels.get(SIGNAL, "")
        if signal in ("scraped", "clock"):
            scraped_at = moment(sample.value) if signal == "scraped" else scraped_at
        elif not math.isfinite(sample.value):
            broken = f"Prometheus answers {sample.value} for its {signal} counter"
        elif signal != "within":
            sums[signal] = max(0.0, sample.value)
    if broken:
        return ShadowEvidence(scraped_at=scraped_at, broken=broken)
    if "compared" not in sums:
        return None
    return ShadowEvidence(
        compared=sums["compared"],
        agreed=min(sums.get("agreed", 0.0), sums["compared"]),
        errors=sums.get("errors", 0.0),
        lost=sums.get("lost", 0.0),
        episodes=sums.get("episodes"),
        within=next(iter(histograms(samples, "within").values()), {}),
        scraped_at=scraped_at,
        gap=round(sums.get("gap", 0.0)),
    )


# The sources of evidence: Prometheus, and the data plane for rewards and opinions.


class PrometheusEvidence:
    """An EvidenceSource. `queries`: answers the users' own queries, from the series of their namespace; None: they
    hold. `pod_label`: chooses the series of an arm's own pods."""

    def __init__(self, prometheus: Prometheus, queries: Prometheus | None = None, pod_label: str = POD_LABEL) -> None:
        self._prometheus, self._queries, self._pod_label = prometheus, queries, pod_label

    async def of_episodes(self, request: EvidenceRequest) -> Evidence:
        """By the counters that policy servers serve of their episodes, and by the users' own queries."""
        return await gather(self._prometheus, request, self._queries, self._pod_label)

    async def of_copies(self, namespace: str, name: str, window: Window) -> Evidence:
        """By the counters that policy servers serve of copies."""
        arms = Arms(namespace, name, [window.revision], self._pod_label)
        return await gather_shadow(self._prometheus, arms, window.seconds)


NOTHING_RECORDED = "the data plane has no episode of it: agents record episodes with model_deployment {name}"
NOTHING_REWARDED = "none of its recorded episodes has a reward: give the agent a RewardPolicy"
NOTHING_RATED = "none of its recorded episodes was rated"


class WithExperience:
    """An EvidenceSource: another one, and the data plane for the metrics that ask for rewards or opinions.

    A data plane that does not answer holds these metrics only.
    """

    def __init__(self, source: EvidenceSource, data_plane: DataPlane) -> None:
        self._source, self._data_plane = source, data_plane

    async def of_episodes(self, request: EvidenceRequest) -> Evidence:
        """The other source's evidence; and rewards and opinions of every window's arm."""
        asking = {
            extra: [metric for metric in request.metrics if extra is type_of(metric).extra_series]
            for extra in (ExtraSeries.REWARDS, ExtraSeries.OPINIONS)
        }
        if not any(asking.values()) or not request.windows:
            return await self._source.of_episodes(request)
        evidence, result = await asyncio.gather(self._source.of_episodes(request), self._outcomes(request))
        if evidence.unavailable:
            return evidence
        if isinstance(result, Missing):
            wanted = [metric.name for metrics in asking.values() for metric in metrics]
            return replace(evidence, arms={key: _lacking(arm, wanted, result) for key, arm in evidence.arms.items()})
        arms = {key: _with(arm, result.get(key), asking, request.name) for key, arm in evidence.arms.items()}
        return replace(evidence, arms=arms)

    async def of_copies(self, namespace: str, name: str, window: Window) -> Evidence:
        """The other source's: copies are not episodes and have no rewards."""
        return await self._source.of_copies(namespace, name, window)

    async def _outcomes(self, request: EvidenceRequest) -> Mapping[str, RevisionOutcomes] | Missing:
        wanted = (
            self._data_plane.outcomes(request.namespace, request.name, revisions, seconds)
            for seconds, revisions in request.by_seconds().items()
        )
        try:
            answers = await asyncio.gather(*wanted)
        except DataPlaneUnavailable as error:
            return Missing(reasons.PROVIDER_DOWN, str(error))
        return {item.revision: item for answer in answers for item in answer.revisions}


def _with(
    arm: ArmEvidence,
    result: RevisionOutcomes | None,
    asking: Mapping[ExtraSeries, Sequence[MetricThreshold]],
    deployment: str,
) -> ArmEvidence:
    """The arm with its rewards and opinions; metrics that have none to go by say why."""
    rewards = Counts(result.rewarded, result.reward_sum) if result else Counts()
    opinions = Counts(result.rated, result.feedback_sum) if result else Counts()
    arm = replace(arm, rewards=rewards, opinions=opinions)
    for extra, observed, text in (
        (ExtraSeries.REWARDS, rewards, NOTHING_REWARDED),
        (ExtraSeries.OPINIONS, opinions, NOTHING_RATED),
    ):
        if observed.n <= 0.0 and asking[extra]:
            recorded = result is not None and result.episodes > 0
            why = text if recorded else NOTHING_RECORDED.format(name=deployment)
            arm = _lacking(arm, [metric.name for metric in asking[extra]], Missing(reasons.EMPTY_RESULT, why))
    return arm


def _lacking(arm: ArmEvidence, metrics: Sequence[str], why: Missing) -> ArmEvidence:
    return replace(arm, problems={**arm.problems, **dict.fromkeys(metrics, why)})
