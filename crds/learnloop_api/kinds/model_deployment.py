"""ModelDeployment: serves a policy and rolls new revisions out in canary steps."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import (
    Digest,
    LocalRef,
    ObjectName,
    PodOptions,
    Resource,
    Revision,
    ShortText,
    Status,
    Time,
    Uri,
)


class ModelSource(Resource):
    """Either a model by address and digest, or whatever a LearningAgent last proved."""

    uri: Uri | None = Field(
        default=None,
        description=(
            "learnloop://<namespace>/<sha256>, https://…, s3://…, file:///…, or "
            "uniform://discrete/<actions>?observations=<size>: the uniform random policy, an honest baseline"
        ),
    )
    sha256: Digest | None = Field(default=None, description="digest of the ONNX file; required with uri")
    learning_agent_ref: LocalRef | None = None


class Serving(Resource):
    """The policy servers of each arm."""

    replicas: int = Field(default=1, ge=0, le=1000, description="pods of the stable arm; the scale subresource")
    canary_replicas: int = Field(default=1, ge=1, le=1000)
    pod: PodOptions = Field(default_factory=PodOptions)


class GatewayRef(Resource):
    """The Gateway whose HTTPRoute carries the weights."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    namespace: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    section_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None


class Routing(Resource):
    """How episodes reach an arm."""

    mode: Literal["service", "gateway"] = Field(
        default="service",
        description="service: policy servers draw the arm, works everywhere; gateway: HTTPRoute weights",
    )
    gateway: GatewayRef | None = Field(default=None, description="required with mode: gateway")
    hostnames: list[Annotated[str, Field(max_length=253)]] | None = Field(default=None, max_length=16)


class RolloutStep(Resource):
    """One step up."""

    weight: int = Field(ge=1, le=100, description="percent of new episodes for the canary")
    min_episodes: int = Field(
        default=20, ge=1, le=10_000_000, description="finished canary episodes before the next step"
    )
    min_seconds: int = Field(default=0, ge=0, le=2_592_000)
    pause: bool = Field(default=False, description="wait here for the annotation learnloop.dev/approve: <revision>")


def _default_steps() -> list[RolloutStep]:
    return [RolloutStep(weight=weight) for weight in (10, 25, 50, 100)]


class MetricThreshold(Resource):
    """One check of the canary; missing data holds, it never passes and never rolls back."""

    name: ObjectName
    type: Literal["success", "return", "errors", "latency", "promql"] = Field(
        description=(
            "success: share of successful episodes; return: mean episode return; errors: share of episodes that "
            "ended in error; latency: 99th percentile of a policy request in seconds; promql: `query` must return "
            "one number, $revision and $namespace are replaced"
        )
    )
    query: Annotated[str, Field(max_length=4096)] | None = None
    min: float | None = Field(default=None, description="lowest acceptable value")
    max: float | None = Field(default=None, description="highest acceptable value")
    min_ratio: float | None = Field(
        default=None, gt=0, description="lowest acceptable value as a multiple of the stable arm's"
    )
    max_ratio: float | None = Field(
        default=None, gt=0, description="highest acceptable value as a multiple of the stable arm's"
    )
    min_episodes: int = Field(default=5, ge=1, le=1_000_000, description="canary episodes before this check may speak")


def _default_metrics() -> list[MetricThreshold]:
    return [
        MetricThreshold(name="return", type="return", min_ratio=0.8),
        MetricThreshold(name="errors", type="errors", max=0.05),
    ]


class Analysis(Resource):
    """What must hold at every step and while guarding."""

    interval_seconds: int = Field(default=5, ge=1, le=3600)
    metrics: list[MetricThreshold] = Field(
        default_factory=_default_metrics,
        min_length=1,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
    )


class Rollout(Resource):
    """The way to 100 %."""

    steps: list[RolloutStep] = Field(default_factory=_default_steps, min_length=1, max_length=20)
    keep_for_seconds: int = Field(
        default=600,
        ge=0,
        le=2_592_000,
        description="how long the old arm stays warm and the new one is watched",
    )
    progress_deadline_seconds: int = Field(
        default=600, ge=10, le=86400, description="a canary whose pods are not ready by then is rolled back"
    )


class DeploymentTemplate(Resource):
    """Everything but the model: what a LearningAgent sets for the ModelDeployment it owns."""

    serving: Serving = Field(default_factory=Serving)
    routing: Routing = Field(default_factory=Routing)
    rollout: Rollout = Field(default_factory=Rollout)
    analysis: Analysis = Field(default_factory=Analysis)


class ModelDeploymentSpec(DeploymentTemplate):
    """A served policy."""

    model: ModelSource
    suspend: bool = False


class ArmStatus(Resource):
    """One arm as it is now."""

    revision: Revision
    uri: Uri
    sha256: Digest | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    episodes: int | None = Field(default=None, description="finished episodes behind the last verdict")
    mean_return: float | None = None
    success_rate: float | None = None
    since: Time | None = None
    message: ShortText | None = Field(default=None, description="why the arm is not ready")


class BlockedRevision(Resource):
    """A revision that was taken back and is not tried again until someone says so."""

    revision: Revision
    uri: Uri
    sha256: Digest | None = None
    reason: ShortText
    message: ShortText
    at: Time


class ModelDeploymentStatus(Status):
    """Where the rollout stands, and the sentence why."""

    stable: ArmStatus | None = None
    canary: ArmStatus | None = None
    previous: ArmStatus | None = Field(default=None, description="the old arm, warm until keepFor is over")
    weight: int | None = Field(default=None, description="percent of new episodes for the canary")
    step: int | None = Field(default=None, description="index of the current step, from 0")
    step_text: ShortText | None = Field(default=None, description="e.g. 2/4")
    step_started_at: Time | None = None
    step_base_episodes: int | None = Field(
        default=None, description="finished canary episodes of this rollout when the current step began"
    )
    rollout_started_at: Time | None = None
    promoted_at: Time | None = None
    blocked_revision: BlockedRevision | None = None
    routing_generation: int | None = None
    verdict: ShortText | None = Field(default=None, description="the last decision in one sentence")
    replicas: int | None = None
    selector: ShortText | None = None
    observed_retry: ShortText | None = Field(default=None, description="value of learnloop.dev/retry already obeyed")
    observed_approve: ShortText | None = Field(
        default=None, description="value of learnloop.dev/approve that passed the last pause"
    )
