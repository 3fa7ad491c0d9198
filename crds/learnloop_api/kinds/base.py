"""Rules the API server enforces (CEL, `x-kubernetes-validations`), written next to the fields they protect.

A model lists its rules in `cel_rules`; `self` is the object of that model with its defaults already applied. Only
functions that every Kubernetes since 1.29 has are used. Every message names the fix, because the API server prints it
after the field.

The API server evaluates every rule at every write, of the status too, and to look up one field it copies the list of
all fields next to it. In an object of thirty fields it is the look-ups that a write pays for, so what a rule can say at
the field itself (`at`) is said there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from learnloop_api.uniform_policy import COARSE

RULES = "x-kubernetes-validations"
PATTERN_MESSAGE = "x-learnloop-pattern-message"


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule of an object.

    `field` is the JSON path, below the object, that the refusal names, e.g. `.sha256`. `at` (camelCase) is the field of
    the object that the rule stands at: `self` is then its value, and nothing is checked while it is left out.
    """

    rule: str
    message: str
    field: str | None = None
    at: str | None = None

    def to_schema(self) -> dict[str, Any]:
        """The rule as an item of `x-kubernetes-validations`."""
        item: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.field:
            item["fieldPath"] = self.field
        return item


def immutable(field: str, fix: str, *, optional: bool = False) -> tuple[Rule, ...]:
    """`field` (camelCase) never changes once the object exists; `optional`: nor may it appear or disappear."""
    message = f"{field} is immutable: {fix}"
    same = Rule("self == oldSelf", message, at=field)
    return (Rule(f"has(self.{field}) == has(oldSelf.{field})", message, f".{field}"), same) if optional else (same,)


def explained(message: str) -> Mapping[str, Any]:
    """`json_schema_extra` for a string with a pattern: the API server answers with `message`, not with the pattern."""
    return {PATTERN_MESSAGE: message}


class Resource(BaseModel):
    """Part of a custom resource: camelCase on the wire, snake_case in Python.

    Unknown fields are ignored on reading: the API server has already pruned or refused them, and an operator
    one version behind the CRDs must keep working.
    """

    model_config = ConfigDict(
        defer_build=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        allow_inf_nan=False,
        frozen=True,
    )

    cel_rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules that the API server checks beyond types and bounds; a subclass adds to its parents' rules."""

    def to_kube(self) -> dict[str, Any]:
        """The object as it is sent to the API server: camelCase, without unset optionals."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def all_rules(cls) -> tuple[Rule, ...]:
        """The rules of the model and of its parents, parents first."""
        return tuple(rule for base in reversed(cls.__mro__) for rule in base.__dict__.get("cel_rules", ()))

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Adds what pydantic leaves out and the API server needs: CEL rules, and defaults made by factories."""
        schema = handler(core_schema)
        body = handler.resolve_ref_schema(schema)
        for rule in cls.all_rules():
            place = body["properties"][rule.at] if rule.at else body
            place.setdefault(RULES, []).append(rule.to_schema())
        for name, field in cls.model_fields.items():
            if field.default_factory is not None:
                value = field.get_default(call_default_factory=True, validated_data={})
                body["properties"][field.alias or name]["default"] = _default(value)
        return schema


def _default(value: Any) -> Any:
    """A default as JSON: sparse, but whole where rules apply, for they see it before nested defaults come in."""
    if isinstance(value, Resource):
        return value.to_kube() if value.all_rules() else value.model_dump(by_alias=True, exclude_defaults=True)
    if isinstance(value, list):
        return [_default(item) for item in value]
    return value


ObjectName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=50,
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        description="A DNS label that starts with a letter.",
        json_schema_extra=dict(
            explained("must be lower-case letters, digits and '-', start with a letter and end with a letter or digit")
        ),
    ),
]
Uri = Annotated[
    str,
    Field(
        max_length=2048,
        pattern=r"^(learnloop|s3|https?|file|uniform|base)://(/|[^/?#@]+(/|$)).*$",
        json_schema_extra=dict(
            explained(
                "must be learnloop://, http(s)://, s3://, file://, uniform:// or base://; keep passwords in a Secret"
            )
        ),
    ),
]
HttpUrl = Annotated[
    str,
    Field(
        max_length=1024,
        pattern=r"^https?://[^/\s?#@]+(/[^\s?#]*)?$",
        json_schema_extra=dict(explained("must be http(s)://HOST[:PORT][/PATH]; keep passwords in a Secret")),
    ),
]
Duration = Annotated[
    str,
    Field(
        max_length=8,
        pattern=r"^[1-9][0-9]{0,5}[smh]$",
        json_schema_extra=dict(explained("must be a whole number of seconds, minutes or hours, e.g. 90s, 20m or 48h")),
    ),
]
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(duration: str) -> float:
    match = re.fullmatch(r"([0-9]+)([smh])", duration)
    assert match, "the API server checks the pattern"
    return float(int(match[1]) * _UNITS[match[2]])


URI_FORMS = (
    Rule(
        "!has(self.uri) || !self.uri.startsWith('uniform://')"
        rf" || self.uri.matches('{COARSE}')",
        "a uniform policy is written uniform://discrete/<actions>?observations=<size>, continuous/<low>..<high> or "
        "hybrid/<choices>/<low>..<high>",
        ".uri",
    ),
    Rule(
        "!has(self.uri) || !self.uri.startsWith('learnloop://')"
        " || self.uri.matches('^learnloop://[a-z0-9]([-a-z0-9]*[a-z0-9])?/[0-9a-f]{64}$')",
        "an artifact of the data plane is written learnloop://<namespace>/<sha256>",
        ".uri",
    ),
    Rule(
        "!has(self.uri) || !self.uri.startsWith('base://') || self.uri.matches('^base://[0-9a-f]{64}$')",
        "the base model alone is written base://<sha256 of languageModel.base>",
        ".uri",
    ),
    Rule(
        "!has(self.uri) || !has(self.sha256) || !self.uri.startsWith('learnloop://')"
        " || self.uri.endsWith('/' + self.sha256)",
        "sha256 differs from the digest in uri: copy both from the same TrainingJob's status.artifact",
        ".sha256",
    ),
)
"""Rules of a model that has a `uri` and a `sha256`."""
Digest = Annotated[
    str,
    Field(
        max_length=64,
        pattern=r"^[0-9a-f]{64}$",
        json_schema_extra=dict(explained("must be 64 lower-case hex digits, as sha256sum prints them")),
    ),
]
Revision = Annotated[str, Field(max_length=8, pattern=r"^[0-9a-f]{8}$")]
ShortText = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
KubeName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        json_schema_extra=dict(explained("must be lower-case letters, digits, '-' and '.'")),
    ),
]
LabelMap = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
Quantity = (
    Annotated[
        str,
        Field(
            max_length=64,
            pattern=r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
            description="A quantity, e.g. 500m, 2 or 4Gi.",
            json_schema_extra=dict(explained("must be a quantity, e.g. 500m, 2 or 4Gi")),
        ),
    ]
    | int
)
QuantityMap = Annotated[dict[str, Quantity], Field(max_length=16)]
Opaque = Annotated[dict[str, Any], Field(max_length=64)]
"""A part of the core/v1 API that is passed on as it is; the API server checks it when the pod is created."""


class LocalRef(Resource):
    """Another object in the same namespace."""

    name: ObjectName = Field(description="Its name.")


class SecretRef(Resource):
    """A Secret in the same namespace."""

    name: KubeName = Field(description="Its name.")


class Condition(Resource):
    """One aspect of the object's state (metav1.Condition)."""

    type: Annotated[str, Field(max_length=316)] = Field(description="The aspect, e.g. Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: int = Field(
        default=0, ge=0, description="The metadata.generation the condition was derived from."
    )
    last_transition_time: Time = Field(description="When status last changed.")
    reason: Annotated[str, Field(min_length=1, max_length=1024)] = Field(description="One CamelCase word why.")
    message: Annotated[str, Field(max_length=32768)] = Field(
        description="One sentence why, with the field and the fix where something is wrong."
    )


class Status(Resource):
    """Status fields of every kind."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation this status was derived from."
    )
    phase: ShortText | None = Field(
        default=None, description="One word for humans, derived from the conditions; never an input."
    )
    brief: ShortText | None = Field(default=None, description="Beginning of the message of Ready, for `kubectl get`.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["type"]},
        description=(
            "Ready, Reconciling and Stalled as kstatus reads them, and the kind's own. The message of Ready is the "
            "sentence `kubectl get -o wide` prints as Message."
        ),
    )


class EnvVar(Resource):
    """One environment variable, as in core/v1."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("!(has(self.value) && has(self.valueFrom))", "set only one of value and valueFrom"),
    )

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Name of the variable.")
    value: Annotated[str, Field(max_length=32768)] | None = Field(default=None, description="Its value.")
    value_from: Opaque | None = Field(
        default=None, description="Where its value comes from: a core/v1 EnvVarSource, e.g. a secretKeyRef."
    )


class Resources(Resource):
    """core/v1 ResourceRequirements; ask for GPUs with `limits: {nvidia.com/gpu: 1}`."""

    requests: QuantityMap | None = Field(default=None, description="What the scheduler sets aside, e.g. cpu: 500m.")
    limits: QuantityMap | None = Field(
        default=None, description="What the pod may use at most. Thread counts follow the cpu limit."
    )
    claims: list[Opaque] | None = Field(
        default=None,
        max_length=16,
        description="Which of the pod's resourceClaims the container uses: core/v1 ResourceClaims.",
    )


class PodOptions(Resource):
    """Settings of the pods that learnloop creates."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="Overrides the operator's default image."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="Left out, the operator's default."
    )
    image_pull_secrets: list[SecretRef] | None = Field(
        default=None,
        max_length=8,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="Secrets with registry credentials.",
    )
    resources: Resources | None = Field(default=None, description="CPU, memory, GPUs and other resources of the pod.")
    env: list[EnvVar] | None = Field(
        default=None,
        max_length=64,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="More environment variables. Those learnloop sets itself cannot be overridden.",
    )
    node_selector: LabelMap | None = Field(default=None, description="Labels a node must have.")
    tolerations: list[Opaque] | None = Field(
        default=None, max_length=32, description="Taints the pod tolerates: core/v1 Tolerations."
    )
    affinity: Opaque | None = Field(default=None, description="Scheduling preferences: a core/v1 Affinity.")
    topology_spread_constraints: list[Opaque] | None = Field(
        default=None, max_length=16, description="How pods spread: core/v1 TopologySpreadConstraints."
    )
    scheduler_name: KubeName | None = Field(default=None, description="Scheduler of the pod; left out, the default.")
    resource_claims: list[Opaque] | None = Field(
        default=None,
        max_length=16,
        description="Devices the pod claims (dynamic resource allocation): core/v1 PodResourceClaims; "
        "resources.claims names those that the container uses.",
    )
    priority_class_name: KubeName | None = Field(default=None, description="PriorityClass of the pod.")
    service_account_name: KubeName | None = Field(
        default=None, description="ServiceAccount of the pod; left out, the one learnloop creates, or `default`."
    )
    volumes: list[Opaque] | None = Field(default=None, max_length=32, description="More volumes: core/v1 Volumes.")
    volume_mounts: list[Opaque] | None = Field(
        default=None, max_length=32, description="Where they are mounted: core/v1 VolumeMounts."
    )
    labels: LabelMap | None = Field(
        default=None, description="More labels of the pod. Those learnloop sets itself cannot be overridden."
    )
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=32768)]], Field(max_length=32)] | None = Field(
        default=None, description="More annotations of the pod."
    )
