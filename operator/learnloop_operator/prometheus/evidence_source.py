"""Prometheus as the source of evidence."""

from learnloop_operator.prometheus.client import Prometheus
from learnloop_operator.prometheus.gather_evidence import gather
from learnloop_operator.prometheus.gather_shadow_evidence import gather_shadow
from learnloop_operator.prometheus.queries import Arms
from learnloop_operator.rollout.evidence.arm_evidence import Evidence
from learnloop_operator.rollout.evidence.source import POD_LABEL, EvidenceRequest, Window


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
