"""Sampler pods, and the queue a run waits in."""

from typing import ClassVar

from pydantic import Field, field_validator

from learnloop_api.kinds.base import KubeName, ObjectName, Resource, Resources, Rule

_OF_PROCESSORS = ("cpu", "memory", "ephemeral-storage")
_PAGES = "hugepages-"
_NO_DEVICES = (
    "samplers play on processors: give them cpu, memory, ephemeral-storage and hugepages alone; ask for GPUs in "
    "pod.resources"
)
_NO_CLAIMS = "samplers play on processors: remove claims, and claim devices in pod.resources"


def _processors(amounts: str) -> str:
    return f"!has({amounts}) || {amounts}.all(n, n in {list(_OF_PROCESSORS)} || n.startsWith('{_PAGES}'))"


class Samplers(Resource):
    """Pods that only play and are not ranks. Each sends its steps to the learner and gets the newest policy.

    They have no devices: quotas of GPUs count those of ranks.
    """

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(f"({_processors('self.requests')}) && ({_processors('self.limits')})", _NO_DEVICES, at="resources"),
        Rule("!has(self.claims)", _NO_CLAIMS, at="resources"),
    )

    count: int = Field(
        ge=0,
        le=256,
        description="Sampler pods. May be changed while the run goes on; one that is lost costs the steps it had not "
        "sent, and nothing else. 0: the learner waits.",
    )
    environments: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Environments that each sampler plays in parallel. With ppo an update takes "
        "hyperparameters.environments pieces of horizon steps: keep it at count × this, or above.",
    )
    max_staleness: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Steps that were taken by a policy more versions old than this are dropped, and counted. Left out: "
        "4 for ppo; 1024 for dqn and sac, which learn from old steps anyway.",
    )
    ratio_max: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="With ppo: cap of the importance ratio by which steps of an older policy are corrected (V-trace, "
        "arXiv 1802.01561).",
    )
    resources: Resources | None = Field(
        default=None,
        description="Of each sampler pod: cpu, memory, ephemeral-storage and hugepages. All else of its pod is as "
        "spec.pod says, but for its claims.",
    )

    @field_validator("resources")
    @classmethod
    def _no_devices(cls, resources: Resources | None) -> Resources | None:
        if resources is None:
            return None
        if resources.claims is not None:
            raise ValueError(_NO_CLAIMS)
        for name in (*(resources.requests or ()), *(resources.limits or ())):
            if name not in _OF_PROCESSORS and not name.startswith(_PAGES):
                raise ValueError(f"{name}: {_NO_DEVICES}")
        return resources


class Queue(Resource):
    """A queue of Kueue (kueue.x-k8s.io). It alone decides when the gang runs, and may take it back."""

    name: ObjectName = Field(description="LocalQueue in this namespace.")
    priority_class: KubeName | None = Field(
        default=None, description="WorkloadPriorityClass of the run; left out, that of its pods."
    )
