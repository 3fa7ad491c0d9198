"""Every kind of object the operator touches, in one table."""

from dataclasses import dataclass

from learnloop_api import names
from learnloop_operator.core.plan import KubeObject, ObjectRef


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind: where the API server keeps it. Objects without a namespace are addressed with an empty one."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """`group/version`, or the bare version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of a collection (name left out), an object, or a subresource; no namespace: all of them."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root, *(["namespaces", namespace] if namespace else []), self.plural]
        return "/".join([*parts, *([name] if name else []), *([subresource] if subresource else [])])

    def ref(self, namespace: str, name: str) -> ObjectRef:
        return ObjectRef(self.api_version, self.kind, namespace, name)


LEARNING_AGENT = ResourceKind(names.GROUP, names.VERSION, "learningagents", "LearningAgent")
TRAINING_JOB = ResourceKind(names.GROUP, names.VERSION, "trainingjobs", "TrainingJob")
REWARD_POLICY = ResourceKind(names.GROUP, names.VERSION, "rewardpolicies", "RewardPolicy")
MODEL_DEPLOYMENT = ResourceKind(names.GROUP, names.VERSION, "modeldeployments", "ModelDeployment")
MEMORY_SERVICE = ResourceKind(names.GROUP, names.VERSION, "memoryservices", "MemoryService")
OWN_KINDS = (LEARNING_AGENT, TRAINING_JOB, REWARD_POLICY, MODEL_DEPLOYMENT, MEMORY_SERVICE)

PYTORCH_JOB = ResourceKind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
TRAIN_JOB = ResourceKind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
JOB = ResourceKind("batch", "v1", "jobs", "Job")
RAY_JOB = ResourceKind("ray.io", "v1", "rayjobs", "RayJob")
GANG_KINDS = (PYTORCH_JOB, TRAIN_JOB, JOB, RAY_JOB)
"""Kinds that may run the ranks of a TrainingJob: see training/backends.py."""
WORKLOAD = ResourceKind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
POD = ResourceKind("", "v1", "pods", "Pod")
SERVICE = ResourceKind("", "v1", "services", "Service")
SECRET = ResourceKind("", "v1", "secrets", "Secret")
CONFIG_MAP = ResourceKind("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNT = ResourceKind("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENT = ResourceKind("apps", "v1", "deployments", "Deployment")
REPLICA_SET = ResourceKind("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SET = ResourceKind("apps", "v1", "statefulsets", "StatefulSet")
ROLE = ResourceKind("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDING = ResourceKind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
HTTP_ROUTE = ResourceKind("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
NETWORK_POLICY = ResourceKind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LEASE = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease")
EVENT = ResourceKind("events.k8s.io", "v1", "events", "Event")

ALL_KINDS = tuple(kind for kind in tuple(globals().values()) if isinstance(kind, ResourceKind))
_BY_TYPE = {(kind.api_version, kind.kind): kind for kind in ALL_KINDS}


def kind_of(item: KubeObject | ObjectRef) -> ResourceKind:
    """The table's row for a manifest or a reference.

    Raises:
        KeyError: a kind the operator has no business with.
    """
    if isinstance(item, ObjectRef):
        return _BY_TYPE[item.api_version, item.kind]
    return _BY_TYPE[item["apiVersion"], item["kind"]]


def ref_of(manifest: KubeObject) -> ObjectRef:
    """Address of the object a complete manifest describes."""
    metadata = manifest["metadata"]
    return ObjectRef(manifest["apiVersion"], manifest["kind"], metadata["namespace"], metadata["name"])
