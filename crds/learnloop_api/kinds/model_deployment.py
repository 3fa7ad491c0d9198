"""ModelDeployment: serves a policy and rolls new revisions out in canary steps."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import (
    URI_FORMS,
    Digest,
    KubeName,
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
from learnloop_api.kinds.rules import Rule


class ModelSource(Resource):
    """Either a model by address and digest, or whatever a LearningAgent last proved."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.uri) != has(self.learningAgentRef)", "set exactly one of uri and learningAgentRef"),
        Rule(
            "!has(self.uri) || has(self.sha256) || self.uri.startsWith('uniform://')",
            "sha256 is required with uri: set the digest of the ONNX file, as sha256sum prints it",
            ".sha256",
        ),
        Rule("has(self.uri) || !has(self.sha256)", "sha256 goes with uri only: remove it", ".sha256"),
        *URI_FORMS,
    )

    uri: Uri | None = Field(
        default=None,
        description=(
            "learnloop://<namespace>/<sha256>, https://…, s3://…, file:///…, or "
            "uniform://discrete/<actions>?observations=<size>: the uniform random policy, an honest baseline."
        ),
    )
    sha256: Digest | None = Field(
        default=None, description="Digest of the ONNX file; required with uri, except for uniform://."
    )
    learning_agent_ref: LocalRef | None = Field(
        default=None, description="Serve the model in status.model of this LearningAgent, and follow it."
    )


class Serving(Resource):
    """The policy servers of each arm."""

    replicas: int = Field(default=1, ge=0, le=1000, description="Pods of the stable arm; the scale subresource.")
    canary_replicas: int = Field(default=1, ge=1, le=1000, description="Pods of the canary arm while there is one.")
    pod: PodOptions = Field(
        default_factory=PodOptions, description="The policy servers' pods. A change of it is a new revision."
    )


class GatewayRef(Resource):
    """The Gateway whose HTTPRoute carries the weights."""

    name: KubeName = Field(description="Name of the Gateway.")
    namespace: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None, description="Its namespace; left out, this one."
    )
    section_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None, description="The listener to attach to; left out, all of them."
    )


class Routing(Resource):
    """How episodes reach an arm."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.mode != 'gateway' || has(self.gateway)",
            "gateway is required with mode gateway: name the Gateway to attach to",
            ".gateway",
        ),
        Rule(
            "self.mode == 'gateway' || !has(self.gateway)",
            "gateway goes with mode gateway only: set mode: gateway, or remove it",
            ".gateway",
        ),
    )

    mode: Literal["service", "gateway"] = Field(
        default="service",
        description="service: policy servers draw the arm, works everywhere; gateway: HTTPRoute weights.",
    )
    gateway: GatewayRef | None = Field(default=None, description="Required with mode: gateway.")
    hostnames: list[Annotated[str, Field(min_length=1, max_length=253)]] | None = Field(
        default=None,
        max_length=16,
        json_schema_extra={"listType": "set"},
        description="Host names of the HTTPRoute; left out, those of the Gateway.",
    )


class RolloutStep(Resource):
    """One step up."""

    weight: int = Field(ge=1, le=100, description="Percent of new episodes for the canary.")
    min_episodes: int = Field(
        default=20, ge=1, le=10_000_000, description="Finished canary episodes before the next step."
    )
    min_seconds: int = Field(default=0, ge=0, le=2_592_000, description="Seconds at this weight before the next step.")
    pause: bool = Field(
        default=False,
        description="Wait here for the annotation learnloop.dev/approve: <revision>, or <revision>/<step>.",
    )


def _default_steps() -> list[RolloutStep]:
    return [RolloutStep(weight=weight) for weight in (10, 25, 50, 100)]


class MetricThreshold(Resource):
    """One check of the canary; missing data holds, it never passes and never rolls back."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.type == 'promql') == has(self.query)",
            "set query with type promql, and only then",
            ".query",
        ),
        Rule(
            "has(self.min) || has(self.max) || has(self.minRatio) || has(self.maxRatio)",
            "a check without a bound checks nothing: set min, max, minRatio or maxRatio",
        ),
        Rule("!has(self.min) || !has(self.max) || self.min <= self.max", "min must not be above max", ".min"),
        Rule(
            "!has(self.minRatio) || !has(self.maxRatio) || self.minRatio <= self.maxRatio",
            "minRatio must not be above maxRatio",
            ".minRatio",
        ),
    )

    name: ObjectName = Field(description="Unique within the analysis; verdicts and events say it.")
    type: Literal["success", "return", "errors", "latency", "promql"] = Field(
        description=(
            "success: share of successful episodes; return: mean episode return; errors: share of episodes that "
            "ended in error; latency: 99th percentile of a policy request in seconds; promql: `query` must return "
            "one number, $revision and $namespace are replaced."
        )
    )
    query: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="PromQL; required for type promql."
    )
    min: float | None = Field(default=None, description="Lowest acceptable value.")
    max: float | None = Field(default=None, description="Highest acceptable value.")
    min_ratio: float | None = Field(
        default=None, gt=0, description="Lowest acceptable value as a multiple of the stable arm's."
    )
    max_ratio: float | None = Field(
        default=None, gt=0, description="Highest acceptable value as a multiple of the stable arm's."
    )
    min_episodes: int = Field(default=5, ge=1, le=1_000_000, description="Canary episodes before this check may speak.")


def _default_metrics() -> list[MetricThreshold]:
    return [
        MetricThreshold(name="return", type="return", min_ratio=0.8),
        MetricThreshold(name="errors", type="errors", max=0.05),
    ]


class Analysis(Resource):
    """What must hold at every step and while guarding."""

    interval_seconds: int = Field(default=5, ge=1, le=3600, description="Seconds between two looks at the metrics.")
    metrics: list[MetricThreshold] = Field(
        default_factory=_default_metrics,
        min_length=1,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="All of them must hold; the first that does not takes the canary back.",
    )


class Rollout(Resource):
    """The way to 100 %."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.steps.map(s, s.weight).isSorted()"
            " && self.steps.all(s, self.steps.exists_one(t, t.weight == s.weight))",
            "the weights of the steps must rise from step to step, e.g. 10, 25, 50, 100",
            ".steps",
        ),
        Rule(
            "self.steps.size() == 0 || self.steps[self.steps.size() - 1].weight == 100",
            "the last step must have weight 100: add `- weight: 100`",
            ".steps",
        ),
    )

    steps: list[RolloutStep] = Field(
        default_factory=_default_steps,
        min_length=1,
        max_length=20,
        description="Weights that rise from step to step and end at 100.",
    )
    keep_for_seconds: int = Field(
        default=600,
        ge=0,
        le=2_592_000,
        description="How long the old arm stays warm and the new one is watched after 100 %.",
    )
    progress_deadline_seconds: int = Field(
        default=600, ge=10, le=86400, description="A canary whose pods are not ready by then is rolled back."
    )


class DeploymentTemplate(Resource):
    """Everything but the model: what a LearningAgent sets for the ModelDeployment it owns."""

    serving: Serving = Field(default_factory=Serving)
    routing: Routing = Field(default_factory=Routing)
    rollout: Rollout = Field(default_factory=Rollout)
    analysis: Analysis = Field(default_factory=Analysis)


class ModelDeploymentSpec(DeploymentTemplate):
    """A served policy: which model, how it is served, and how a new one takes over."""

    model: ModelSource
    suspend: bool = Field(
        default=False, description="The operator leaves weights, arms and evidence as they are until this is false."
    )


class ArmStatus(Resource):
    """One arm as it is now."""

    revision: Revision = Field(description="Hash of the model and of the pods that serve it.")
    uri: Uri = Field(description="Address of the model.")
    sha256: Digest | None = Field(default=None, description="Digest of the model.")
    replicas: int | None = Field(default=None, ge=0, description="Pods that exist.")
    ready_replicas: int | None = Field(default=None, ge=0, description="Pods that answer.")
    episodes: int | None = Field(default=None, ge=0, description="Finished episodes behind the last verdict.")
    mean_return: float | None = Field(default=None, description="Mean return of these episodes.")
    success_rate: float | None = Field(default=None, description="Share of these episodes that succeeded, 0 to 1.")
    since: Time | None = Field(default=None, description="When the revision took this role.")
    message: ShortText | None = Field(default=None, description="Why the arm is not ready.")


class BlockedRevision(Resource):
    """A revision that was taken back and is not tried again until someone says so."""

    revision: Revision = Field(description="The revision.")
    uri: Uri = Field(description="Address of its model.")
    sha256: Digest | None = Field(default=None, description="Digest of its model.")
    reason: ShortText = Field(description="One CamelCase word why.")
    message: ShortText = Field(description="One sentence why, with the numbers.")
    at: Time = Field(description="When it was taken back.")


class ModelDeploymentStatus(Status):
    """Where the rollout stands, and the sentence why."""

    stable: ArmStatus | None = Field(default=None, description="The arm that serves whoever is not on the canary.")
    canary: ArmStatus | None = Field(default=None, description="The arm on trial.")
    previous: ArmStatus | None = Field(default=None, description="The old arm, warm until keepForSeconds is over.")
    weight: int | None = Field(default=None, ge=0, le=100, description="Percent of new episodes for the canary.")
    step: int | None = Field(default=None, ge=0, le=20, description="Index of the current step, from 0.")
    step_text: ShortText | None = Field(default=None, description="The current step for humans, e.g. 2/4.")
    step_started_at: Time | None = Field(default=None, description="When the current step began.")
    step_base_episodes: int | None = Field(
        default=None, ge=0, description="Finished canary episodes of this rollout when the current step began."
    )
    rollout_started_at: Time | None = Field(default=None, description="When the canary was created.")
    promoted_at: Time | None = Field(default=None, description="When the stable arm reached 100 %.")
    blocked_revision: BlockedRevision | None = Field(
        default=None,
        description=(
            "The revision that was rolled back. It stays blocked until the annotation learnloop.dev/retry changes or "
            "the model does."
        ),
    )
    routing_generation: int | None = Field(default=None, ge=0, description="Counts the writes of the routing table.")
    verdict: ShortText | None = Field(default=None, description="The last decision in one sentence.")
    replicas: int | None = Field(default=None, ge=0, description="Pods of the stable arm; the scale subresource.")
    selector: ShortText | None = Field(default=None, description="Label selector of these pods; for autoscalers.")
    observed_retry: ShortText | None = Field(default=None, description="Value of learnloop.dev/retry already obeyed.")
    observed_approve: ShortText | None = Field(
        default=None, description="Value of learnloop.dev/approve that passed the last pause."
    )
