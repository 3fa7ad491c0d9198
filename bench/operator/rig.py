"""The objects of a platform: what a benchmark creates and changes."""

from typing import Any

from learnloop_api import names
from learnloop_operator.kube.kinds import ResourceKind

SHA = "ab" * 32


def namespace(number: int) -> str:
    """Name of a team's namespace."""
    return f"team-{number:03d}"


def manifest(kind: ResourceKind, team: int, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """One custom resource."""
    metadata = {"name": name, "namespace": namespace(team)}
    return {"apiVersion": names.API_VERSION, "kind": kind.kind, "metadata": metadata, "spec": spec}


def namespaces(count: int) -> list[dict[str, Any]]:
    """The teams' namespaces."""
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(i)}} for i in range(count)]


def model_deployment(*, suspend: bool = False) -> dict[str, Any]:
    """Spec of a ModelDeployment that serves one model."""
    model = {"uri": "https://models.example/policy.onnx", "sha256": SHA}
    return {"model": model, "suspend": suspend, "rollout": {"keepForSeconds": 600}}


def edit(number: int) -> dict[str, Any]:
    """A change of a ModelDeployment's spec that asks for no other child: each number is another one."""
    return {"spec": {"rollout": {"keepForSeconds": 601 + number}}}


REWARD_POLICY: dict[str, Any] = {"components": [{"name": "solved", "type": "success", "weight": 1}]}


def agent_edit(number: int) -> dict[str, Any]:
    """Another threshold."""
    return {"spec": {"training": {"triggers": {"episodes": 21 + number % 50}}}}


def learning_agent(policy: str) -> dict[str, Any]:
    """Spec of a suspended LearningAgent."""
    task = {"observations": 4, "actions": 2, "environment": {"name": "CartPole-v1", "successReturn": 195}}
    training = {"triggers": {"episodes": 20}, "template": {"algorithm": "ppo", "totalSteps": 1000}}
    return {"suspend": True, "rewardPolicyRef": {"name": policy}, "task": task, "training": training}
