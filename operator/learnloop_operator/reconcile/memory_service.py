"""MemoryService: gather, decide."""

import asyncio
import dataclasses
import secrets
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_operator.core import plan, pod_trouble
from learnloop_operator.kube import kinds, kubernetes_events, object_cache
from learnloop_operator.memory_services import decide_service, service_snapshot
from learnloop_operator.reconcile.work_queue import Services, read_spec


class MemoryServiceController:
    """Runs the memory image, and PostgreSQL where asked to."""

    kind: kinds.ResourceKind = kinds.MEMORY_SERVICE

    def __init__(self, services: Services) -> None:
        self._services = services

    async def gather(self, namespace: str, name: str) -> service_snapshot.MemoryServiceSnapshot | None:
        """The service, its children, what its agents may keep, and what its pods complain of."""
        find = self._services.kube.find
        live = await find(kinds.MEMORY_SERVICE, namespace, name)
        if live is None:
            return None
        settings, agents = self._services.settings, await self._services.kube.list(kinds.LEARNING_AGENT, namespace)
        view = service_snapshot.MemoryServiceSnapshot(
            now=self._services.clock(),
            object=live,
            spec=read_spec(MemoryServiceSpec, live),
            images=(settings.memory_image, settings.postgres_image),
            pull_policy=settings.image_pull_policy,
            budgets=service_snapshot.budgets_json(namespace, service_snapshot.budgets_of(name, agents)),
            operator_subject=settings.operator_subject,
            tls=namespace in settings.tls_namespaces,
            pod_rules=settings.pod_rules,
            network=settings.workload_network,
        )
        server, front, database, back, config = await asyncio.gather(
            find(kinds.DEPLOYMENT, namespace, view.server_name),
            find(kinds.SERVICE, namespace, view.server_name),
            find(kinds.STATEFUL_SET, namespace, view.database_name),
            find(kinds.SERVICE, namespace, view.database_name),
            find(kinds.CONFIG_MAP, namespace, view.database_name),
        )
        message = await find(kinds.CONFIG_MAP, namespace, view.budgets_name)
        complaint = await self._complaint(namespace, name, server, database)
        changes: dict[str, Any] = {
            "children": tuple(item for item in (server, front, database, back, config, message) if item),
            "fresh_password": secrets.token_urlsafe(32),
            "server": server,
            "database": database,
            "complaint": complaint,
        }
        return dataclasses.replace(view, **changes)

    def decide(self, snapshot: service_snapshot.MemoryServiceSnapshot) -> plan.Plan:
        return decide_service.decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[plan.Call, ...]:
        """Nothing outside the cluster to remove: the garbage collector deletes the children."""
        return ()

    async def _complaint(
        self, namespace: str, name: str, server: object_cache.Object | None, database: object_cache.Object | None
    ) -> str | None:
        """Message of the first pod that is not ready, or why it is missing."""
        kube = self._services.kube
        pods = await kube.list(kinds.POD, namespace, labels=f"{names.LABEL_MEMORY}={name}")
        pods = await kubernetes_events.with_events(kube, namespace, pods, self._services.clock())
        text = next(filter(None, map(pod_trouble.complaint_of, pods)), None) or (
            pod_trouble.creation_trouble(server) if server else ""
        )
        if text or database is None or _has_pods(database):
            return text or None
        # A StatefulSet has no condition for what keeps it from making its pod.
        return await kubernetes_events.failure_of(kube, namespace, database["metadata"]["uid"]) or None


def _has_pods(stateful_set: object_cache.Object) -> bool:
    wanted = (stateful_set.get("spec") or {}).get("replicas", 1)
    return bool(((stateful_set.get("status") or {}).get("replicas") or 0) >= wanted)
