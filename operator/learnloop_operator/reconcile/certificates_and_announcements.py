"""Background work: certificates of namespaces, news for the data plane, artifacts in use."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate
from prometheus_client import Gauge

from learnloop_api import names
from learnloop_operator.core import artifacts_in_use, plan
from learnloop_operator.data_plane_client import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.kube import errors, fenced_client, kinds

log = logging.getLogger(__name__)
MANAGER = "learnloop-trust"
LOOK_SECONDS = 30.0
"""Seconds until a changed or deleted ConfigMap is restored."""


class TrustBundles:
    """Keeps the bundle of `file`, which is one of the operator's own mounts, in each namespace that it works in."""

    def __init__(self, kube: fenced_client.KubeClient, file: Path, clock: Callable[[], float]) -> None:
        self._kube, self._file, self._clock = kube, file, clock
        self._there: dict[str, tuple[str, float]] = {}
        """Each certificate that was read or written, and when."""

    async def ensure(self, namespace: str) -> None:
        """The namespace has the bundle as it is now: pods that are made after this find it.

        Raises:
            OSError: the file cannot be read.
            KubeError: the API server refuses.
        """
        bundle = self._file.read_text(encoding="utf-8")
        previous, since = self._there.get(namespace, ("", 0.0))
        if previous == bundle and self._clock() - since < LOOK_SECONDS:
            return
        live = await self._kube.find(kinds.CONFIG_MAP, namespace, names.CA_CONFIG_MAP)
        if live is None or (live.get("data") or {}).get(names.CA_KEY) != bundle:
            manifest = {
                "apiVersion": kinds.CONFIG_MAP.api_version,
                "kind": kinds.CONFIG_MAP.kind,
                "metadata": {
                    "name": names.CA_CONFIG_MAP,
                    "namespace": namespace,
                    "labels": {names.LABEL_PART_OF: names.MANAGED_BY},
                },
                "data": {names.CA_KEY: bundle},
            }
            await self._kube.apply(manifest, MANAGER, live=live)
            log.info("namespace %s has the bundle of the authorities", namespace)
        self._there[namespace] = (bundle, self._clock())

    def forget(self, namespace: str) -> None:
        """Something of ours left the namespace: the next pass there looks again."""
        self._there.pop(namespace, None)


FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
MAX_WAITING = 10_000


class Announcer:
    """Delivers in order, at least once, each identity of a path once while this process lives.

    A process that dies forgets what was waiting; the next one tells what is so then, and the data plane knows
    whether that is news.
    """

    def __init__(self, data_plane: DataPlane) -> None:
        self._data_plane = data_plane
        self._announced: dict[tuple[str, str], str] = {}
        self._waiting: deque[tuple[str, plan.Call]] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()

    def say(self, namespace: str, news: plan.Announcement) -> None:
        """Puts it in the queue unless it was the last thing said at this path."""
        key = (namespace, news.call.path)
        if self._announced.get(key) == news.identity:
            return
        if len(self._announced) >= MAX_WAITING:
            self._announced.clear()  # saying it again does no harm
        self._announced[key] = news.identity
        self._waiting.append((namespace, news.call))
        self._wake.set()

    async def run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                namespace, call = self._waiting[0]
                try:
                    await self._data_plane.call(namespace, call)
                except (DataPlaneUnavailable, errors.NotLeading) as error:
                    log.info("%s of %s is sent later: %s", call.path, namespace, error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                except DataPlaneRefused as error:
                    log.warning("%s of %s cannot be sent: %s", call.path, namespace, error)
                pause = FIRST_PAUSE
                if self._waiting and self._waiting[0][1] is call:
                    self._waiting.popleft()


FIRST_SECONDS, EVERY_SECONDS = 60.0, 3600.0


class ArtifactUsageReporter:
    """Asks the API server itself, not a cache: an object that is not seen would lose its model."""

    def __init__(
        self, kube: fenced_client.KubeClient, data_plane: DataPlane, namespaces: Callable[[], Iterable[str]]
    ) -> None:
        """`namespaces`: those this operator looks after, empty while another one leads."""
        self._kube, self._data_plane, self._namespaces = kube, data_plane, namespaces

    async def run(self, first: float = FIRST_SECONDS, every: float = EVERY_SECONDS) -> None:
        await asyncio.sleep(first)
        while True:
            for namespace in sorted(self._namespaces()):
                try:
                    await self.tell(namespace)
                except (DataPlaneUnavailable, DataPlaneRefused, errors.KubeError, ValueError) as error:
                    log.info("old artifacts of %s stay for now: %s", namespace, error)
            await asyncio.sleep(every)

    async def tell(self, namespace: str) -> None:
        """About one namespace. Raises what keeps it from being told; then nothing is deleted."""
        models, agents, policies, jobs = [
            await self._kube.list(kind, namespace)
            for kind in (kinds.MODEL_DEPLOYMENT, kinds.LEARNING_AGENT, kinds.REWARD_POLICY, kinds.TRAINING_JOB)
        ]
        await self._data_plane.call(namespace, artifacts_in_use.in_use([*models, *agents, *policies], jobs))


def show_expiry(gauge: Gauge) -> None:
    """Set the gauge to the end of this process's certificate. All parts' certificates are renewed together."""
    file = os.environ.get(names.ENV_TLS_CERTIFICATE, "")
    try:
        gauge.set(load_pem_x509_certificate(Path(file).read_bytes()).not_valid_after_utc.timestamp())
    except (OSError, ValueError) as error:
        log.warning("%s=%s: cannot read the certificate: %s", names.ENV_TLS_CERTIFICATE, file, error)
