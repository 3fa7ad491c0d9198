"""Prometheus as the source of evidence."""

from learnloop_operator.adapters.prometheus.client import Prometheus
from learnloop_operator.adapters.prometheus.gather_evidence import gather
from learnloop_operator.adapters.prometheus.gather_shadow_evidence import gather_shadow
from learnloop_operator.adapters.prometheus.queries import Arms
from learnloop_operator.core.promql.namespace_scope import OWN_SERIES, Scope
from learnloop_operator.core.rollout.evidence.arm_evidence import Evidence
from learnloop_operator.core.rollout.evidence.source import EvidenceRequest, Window


class PrometheusEvidence:
    """An EvidenceSource. `scope`: which series the users' own queries may read."""

    def __init__(self, prometheus: Prometheus, scope: Scope = OWN_SERIES) -> None:
        self._prometheus, self._scope = prometheus, scope

    async def of_episodes(self, request: EvidenceRequest) -> Evidence:
        """By the counters that policy servers serve of their episodes, and by the users' own queries."""
        return await gather(self._prometheus, request, self._scope)

    async def of_copies(self, namespace: str, name: str, window: Window) -> Evidence:
        """By the counters that policy servers serve of copies."""
        arms = Arms(namespace, name, [window.revision], self._scope.pod_label)
        return await gather_shadow(self._prometheus, arms, window.seconds)
