"""Sources of evidence: Prometheus, and the data plane for rewards and opinions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.wire.deployment import RevisionOutcomes
from learnloop_operator.data_plane import DataPlane, DataPlaneUnavailable
from learnloop_operator.prometheus.client import Prometheus
from learnloop_operator.prometheus.gather_evidence import gather, gather_shadow
from learnloop_operator.prometheus.queries import Arms
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import (
    POD_LABEL,
    ArmEvidence,
    Evidence,
    EvidenceRequest,
    EvidenceSource,
    ExtraSeries,
    Missing,
    Window,
)
from learnloop_operator.rollout.metrics.metric_types import type_of
from learnloop_operator.statistics.betting import Counts


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
