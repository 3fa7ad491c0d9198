"""The peer of the burst: create and update handlers, as Kopf's documentation teaches them, for all of our kinds.

    python -m bench.operator.plain_kopf_all

It asks the API server, decides and renders as our operator does (the same controllers over a client that always reads
live), applies children with the same client, and hands the status to Kopf's patch. What differs is what a plain Kopf
operator does by itself; see plain_kopf.py, which is kept for the figures of 1,000 ModelDeployments alone. Deletions
cost it nothing: there is no delete handler, because that would be a finalizer on every object.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

import kopf
import uvloop

from learnloop_operator.data_plane import DataPlane
from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.kinds import kind_of
from learnloop_operator.metrics import OperatorMetrics
from learnloop_operator.prometheus.client import Prometheus
from learnloop_operator.prometheus.evidence_source import PrometheusEvidence
from learnloop_operator.prometheus.pod_counters import CounterReader
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.reconcile.registry import controllers
from learnloop_operator.reconcile.runtime import Controller
from learnloop_operator.reconcile.services import Services, utc_now
from learnloop_operator.settings import from_environment
from testing.operators.api_access import find

RETRY_SECONDS = 5.0


class Peer:
    """The clients of one process and a handler for each kind."""

    def __init__(self) -> None:
        settings = from_environment(os.environ)
        self.kube = KubeClient(find())
        self.data_plane = DataPlane(settings.data_url, settings.token_file)
        lane = FastLaneReader(CounterReader(), OperatorMetrics(), utc_now)
        services = Services(self.kube, self.data_plane, PrometheusEvidence(Prometheus("")), settings, lane)
        for controller in controllers(services):
            where = (controller.kind.group, controller.kind.version, controller.kind.plural)
            handler = self._handler(controller)
            kopf.on.create(*where)(handler)
            kopf.on.update(*where)(handler)

    def _handler(self, controller: Controller[Any]) -> Callable[..., Any]:
        async def reconcile(patch: kopf.Patch, namespace: str, name: str, **_: Any) -> None:
            """The children, the data plane, then the status."""
            snapshot = await controller.gather(namespace, name)
            if snapshot is None:
                return
            plan = controller.decide(snapshot)
            for child in plan.apply:
                at = child["metadata"]
                there = await self.kube.find(kind_of(child), at["namespace"], at["name"])
                await self.kube.apply(child, "plain-kopf", live=there)
            for call in plan.calls:
                await self.data_plane.call(namespace, call)
            patch.status.update(plan.status)

        return reconcile

    async def run(self) -> None:
        """Until SIGTERM."""
        await kopf.operator(standalone=True, clusterwide=True)
        await self.kube.close()
        await self.data_plane.close()


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Events are off on both sides; what fails is tried again soon."""
    settings.posting.enabled = False
    settings.execution.default_backoff = RETRY_SECONDS


async def main() -> None:
    """Until SIGTERM."""
    await Peer().run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(main())
