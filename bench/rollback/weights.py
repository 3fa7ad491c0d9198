"""Watches of what the two products write: HTTPRoutes, and our routing tables."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError
from kubernetes_asyncio.client import ApiClient, ApiException, CoreV1Api, CustomObjectsApi
from kubernetes_asyncio.watch import Watch

from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import CONFIG_MAP, HTTP_ROUTE, ResourceKind


@dataclass
class Weights:
    """The canary's weight by name of the deployment, and a bell that rings with every change of any of it."""

    kube: KubeClient
    namespace: str
    route: dict[str, int] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    """How many canaries our routing table lists: the servers of any other refuse."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Watch both kinds forever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(HTTP_ROUTE, self.route, canary_of_route))
            group.create_task(self._watch(CONFIG_MAP, self.listed, canaries_of_table))

    async def _watch(self, kind: ResourceKind, weights: dict[str, int], read: Callable[[Any], int | None]) -> None:
        while True:
            try:
                async for event, item in watched(self.kube, kind, self.namespace):
                    weight = read(item) if event in ("ADDED", "MODIFIED") else None
                    if weight is not None:
                        weights[item["metadata"]["name"].removesuffix("-routing")] = weight
                        async with self.changed:
                            self.changed.notify_all()
            except (ApiException, ClientError):
                await asyncio.sleep(0.2)

    async def until(self, what: Callable[[], bool], seconds: float, timeout_message: str) -> float:
        """When `what` became true, by time.monotonic(); TimeoutError with `timeout_message`."""
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait_for(what), seconds)
            except TimeoutError:
                raise TimeoutError(f"not within {seconds:g} s: {timeout_message}") from None
            return time.monotonic()


async def watched(kube: KubeClient, kind: ResourceKind, namespace: str) -> AsyncIterator[tuple[str, Any]]:
    """Types and objects of a kind's events, until the API server ends the watch."""
    async with ApiClient(kube.http.configuration) as api:
        plural = CustomObjectsApi(api).list_namespaced_custom_object
        core = CoreV1Api(api).list_namespaced_config_map
        listing = (core, namespace) if not kind.group else (plural, kind.group, kind.version, namespace, kind.plural)
        async with Watch().stream(*listing, timeout_seconds=280) as events:
            async for event in events:
                yield event["type"], event["raw_object"]


def canary_of_route(route: Any) -> int | None:
    """Percent that the last rule of a route gives to the canary: Flagger's is named so, ours follows stable."""
    backends = route["spec"]["rules"][-1].get("backendRefs") or []
    if any(item["name"].endswith("-canary") for item in backends):
        return sum(int(item.get("weight", 1)) for item in backends if item["name"].endswith("-canary"))
    return sum(int(item.get("weight", 1)) for item in backends[1:])


def canaries_of_table(config_map: Any) -> int | None:
    """How many canaries a routing table lists; None for any other ConfigMap."""
    text = (config_map.get("data") or {}).get("routing.json")
    if text is None or not config_map["metadata"]["name"].endswith("-routing"):
        return None
    arms: list[dict[str, Any]] = json.loads(text)["arms"]
    return sum(1 for arm in arms if arm["role"] == "canary")
