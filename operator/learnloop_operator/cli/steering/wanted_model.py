"""The model that a ModelDeployment asks for, found as the operator finds it."""

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.cli.access.cluster import Cluster
from learnloop_operator.rollout.model.revision import agent_status, resolve
from learnloop_operator.rollout.model.snapshot import Desired


def wanted(cluster: Cluster, spec: ModelDeploymentSpec, namespace: str) -> Desired:
    """The model with its revision, or why there is none."""
    reference = spec.model.learning_agent_ref
    agent = agent_status(cluster.find("learningagents", reference.name)) if reference else None
    return resolve(spec, agent, namespace)
