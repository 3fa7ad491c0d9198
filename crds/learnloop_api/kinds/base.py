"""Building blocks of every custom resource."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Resource(BaseModel):
    """Part of a custom resource: camelCase on the wire, snake_case in Python.

    Unknown fields are ignored on reading: the API server has already pruned or refused them, and an operator
    one version behind the CRDs must keep working.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", allow_inf_nan=False, frozen=True
    )

    def to_kube(self) -> dict[str, Any]:
        """The object as it is sent to the API server: camelCase, without unset optionals."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=50, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", description="a DNS label"),
]
Uri = Annotated[str, Field(min_length=1, max_length=2048, pattern=r"^(learnloop|s3|https?|file|uniform)://.+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
ShortText = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class LocalRef(Resource):
    """Another object in the same namespace."""

    name: ObjectName


class Condition(Resource):
    """metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: int = 0
    last_transition_time: Time
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)]


class Status(Resource):
    """What every kind reports."""

    observed_generation: int | None = None
    phase: ShortText | None = Field(default=None, description="one word for humans, derived; never an input")
    conditions: list[Condition] = Field(
        default_factory=list, max_length=16, json_schema_extra={"listType": "map", "listMapKeys": ["type"]}
    )


class EnvVar(Resource):
    """One environment variable; `valueFrom` as in core/v1."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    value: Annotated[str, Field(max_length=32768)] | None = None
    value_from: dict[str, Any] | None = Field(default=None, description="core/v1 EnvVarSource")


class Resources(Resource):
    """core/v1 ResourceRequirements; ask for GPUs with `limits: {nvidia.com/gpu: 1}`."""

    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class PodOptions(Resource):
    """What a user may set on the pods learnloop creates."""

    image: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="overrides the operator's default image"
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: list[LocalRef] | None = Field(default=None, max_length=8)
    resources: Resources | None = None
    env: list[EnvVar] | None = Field(default=None, max_length=64)
    node_selector: dict[str, str] | None = Field(default=None, max_length=32)
    tolerations: list[dict[str, Any]] | None = Field(default=None, max_length=32, description="core/v1 Toleration")
    affinity: dict[str, Any] | None = Field(default=None, description="core/v1 Affinity")
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    service_account_name: Annotated[str, Field(max_length=253)] | None = None
    volumes: list[dict[str, Any]] | None = Field(default=None, max_length=32, description="core/v1 Volume")
    volume_mounts: list[dict[str, Any]] | None = Field(default=None, max_length=32, description="core/v1 VolumeMount")
    labels: dict[str, str] | None = Field(default=None, max_length=32)
    annotations: dict[str, str] | None = Field(default=None, max_length=32)
