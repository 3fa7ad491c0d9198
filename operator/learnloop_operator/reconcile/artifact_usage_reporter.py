"""Tells the data plane now and then which artifacts are in use, so that it may let the others go when they are old."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from learnloop_operator.core.artifacts_in_use import in_use
from learnloop_operator.data_plane import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kinds import LEARNING_AGENT, MODEL_DEPLOYMENT, REWARD_POLICY, TRAINING_JOB

log = logging.getLogger(__name__)
FIRST_SECONDS, EVERY_SECONDS = 60.0, 3600.0


class ArtifactUsageReporter:
    """Asks the API server itself, not a cache: an object that is not seen would lose its model."""

    def __init__(self, kube: KubeClient, data_plane: DataPlane, namespaces: Callable[[], Iterable[str]]) -> None:
        """`namespaces`: those this operator looks after, empty while another one leads."""
        self._kube, self._data_plane, self._namespaces = kube, data_plane, namespaces

    async def run(self, first: float = FIRST_SECONDS, every: float = EVERY_SECONDS) -> None:
        """Runs until cancelled; pauses in seconds."""
        await asyncio.sleep(first)
        while True:
            for namespace in sorted(self._namespaces()):
                try:
                    await self.tell(namespace)
                except (DataPlaneUnavailable, DataPlaneRefused, KubeError, ValueError) as error:
                    log.info("old artifacts of %s stay for now: %s", namespace, error)
            await asyncio.sleep(every)

    async def tell(self, namespace: str) -> None:
        """About one namespace. Raises what keeps it from being told; then nothing is deleted."""
        models, agents, policies, jobs = [
            await self._kube.list(kind, namespace)
            for kind in (MODEL_DEPLOYMENT, LEARNING_AGENT, REWARD_POLICY, TRAINING_JOB)
        ]
        await self._data_plane.call(namespace, in_use([*models, *agents, *policies], jobs))
