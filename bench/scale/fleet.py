"""The content of the cluster: nodes, the teams' agents and ModelDeployments, and pods of others."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.operator import rig
from bench.operator.api import Api, many
from bench.operator.thousand import say
from learnloop_operator.kube.kinds import LEARNING_AGENT, MODEL_DEPLOYMENT, REWARD_POLICY

PODS_A_NODE = 110
"""The kubelet's default."""
TEAM_SIZE = 20
TEAMS_OWN = "policy"
PODS_AN_AGENT = 2
"""Its policy server and its actor."""
FEWEST_TEAMS = 10
LOOK_SECONDS = 3.0
STUCK_SECONDS = 180.0
PAGE = 500


@dataclass(frozen=True, slots=True)
class Fleet:
    """Sizes. The operator makes a ModelDeployment for each agent; its policy server and its actor are pods that the
    scheduler places."""

    nodes: int = 500
    agents: int = 2000
    pods: int = 10_000

    @property
    def teams(self) -> int:
        """Namespaces."""
        return max(FEWEST_TEAMS, self.agents // TEAM_SIZE)

    @property
    def others(self) -> int:
        """Pods of somebody else; they are created with a node, as the scheduler is busy enough."""
        return max(0, self.pods - PODS_AN_AGENT * self.agents)

    @property
    def deployments(self) -> int:
        """ModelDeployments: one of each agent, and one of each team itself."""
        return self.agents + self.teams

    def node(self, number: int) -> dict[str, Any]:
        """A node of 32 cores."""
        name = f"node-{number:04d}"
        room = {"cpu": "32", "memory": "256Gi", "pods": str(PODS_A_NODE)}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room},
        }

    def pod(self, number: int) -> dict[str, Any]:
        """A pod of somebody else, in a team's namespace."""
        container = {"name": "main", "image": "example.com/other:1", "resources": {"requests": {"cpu": "100m"}}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"other-{number:05d}", "namespace": rig.namespace(number % self.teams)},
            "spec": {"nodeName": f"node-{number % self.nodes:04d}", "containers": [container]},
        }

    def policies(self) -> list[dict[str, Any]]:
        """A RewardPolicy for each team."""
        return [rig.manifest(REWARD_POLICY, team, "reward", rig.REWARD_POLICY) for team in range(self.teams)]

    def learning_agents(self) -> list[dict[str, Any]]:
        """Agents that wait for more experience than they ever get: none is suspended, none trains."""
        spec = rig.learning_agent("reward") | {"suspend": False}
        spec["training"] = spec["training"] | {"triggers": {"episodes": 1_000_000}}
        # No admission names a ServiceAccount here; a pod that has a token and no account is refused forever.
        spec["task"]["environment"]["actors"] = {"pod": {"serviceAccountName": "default"}}
        return [rig.manifest(LEARNING_AGENT, i % self.teams, f"agent-{i:05d}", spec) for i in range(self.agents)]

    def model_deployments(self) -> list[dict[str, Any]]:
        """One of each team itself, which only people edit."""
        spec = rig.model_deployment()
        return [rig.manifest(MODEL_DEPLOYMENT, team, TEAMS_OWN, spec) for team in range(self.teams)]


async def fill(api: Api, fleet: Fleet) -> dict[str, float]:
    """Nodes, namespaces and the others' pods, until all are ready; seconds of each.

    Raises:
        TimeoutError: nothing became ready any more; says how much had.
    """
    figures = {}
    nodes = [fleet.node(number) for number in range(fleet.nodes)]
    figures["nodes_created_s"] = await many(lambda item: api.call("POST", "/api/v1/nodes", item), nodes)
    figures["nodes_ready_s"] = await none_left("nodes to become ready", lambda: _unready_nodes(api))
    await many(api.create, rig.namespaces(fleet.teams))
    pods = [fleet.pod(number) for number in range(fleet.others)]
    figures["other_pods_created_s"] = await many(lambda item: _create_pod(api, item), pods)
    figures["other_pods_running_s"] = await none_left("pods of others to run", lambda: _not_running(api))
    await many(api.create, fleet.policies())
    return figures


async def none_left(what: str, left: Callable[[], Awaitable[int]], alive: Callable[[], None] = lambda: None) -> float:
    """Seconds until `left` says 0. Raises TimeoutError when it has said the same for three minutes."""
    started = changed = time.monotonic()
    previous = -1
    while remaining := await left():
        alive()
        if remaining != previous:
            previous, changed = remaining, time.monotonic()
            say(f"waiting for {remaining} {what}")
        if time.monotonic() - changed > STUCK_SECONDS:
            raise TimeoutError(f"{remaining} {what}, and it has been so for {STUCK_SECONDS:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic() - started


async def count_pods(api: Api) -> dict[str, int]:
    """All pods of the cluster, and those that a Deployment made and the scheduler placed."""
    total = placed = 0
    async for item in _listed(api, "/api/v1/pods"):
        if item["status"].get("phase") == "Running":
            total += 1
            placed += "ownerReferences" in item["metadata"]
    return {"pods_running": total, "pods_placed_by_the_scheduler": placed}


async def unready_deployments(api: Api) -> int:
    """Deployments with fewer ready pods than they want."""
    left = 0
    async for item in _listed(api, "/apis/apps/v1/deployments"):
        left += bool(item["status"].get("readyReplicas", 0) < item["spec"]["replicas"])
    return left


async def _listed(api: Api, path: str) -> AsyncIterator[dict[str, Any]]:
    """Every object, page by page."""
    query = {"limit": str(PAGE)}
    while True:
        answer = await api.call("GET", path, **query)
        for item in answer["items"]:
            yield item
        if not (more := answer["metadata"].get("continue")):
            return
        query["continue"] = more


async def _create_pod(api: Api, item: dict[str, Any]) -> None:
    await api.call("POST", f"/api/v1/namespaces/{item['metadata']['namespace']}/pods", item)


async def _unready_nodes(api: Api) -> int:
    items = (await api.call("GET", "/api/v1/nodes", resourceVersion="0"))["items"]
    return sum(not _ready(item) for item in items)


async def _not_running(api: Api) -> int:
    query = {"fieldSelector": "status.phase!=Running", "resourceVersion": "0"}
    return len((await api.call("GET", "/api/v1/pods", **query))["items"])


def _ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not node["spec"].get("taints")
