"""ModelDeployment: serves a policy and rolls new revisions out in canary steps."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import (
    URI_FORMS,
    Digest,
    KubeName,
    LocalRef,
    PodOptions,
    Resource,
    Revision,
    Rule,
    ShortText,
    Status,
    Time,
    Uri,
)
from learnloop_api.kinds.language_model import LanguageModel, LanguageServing
from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence
from learnloop_api.kinds.rollouts.experiment import Experiment, ExperimentStatus
from learnloop_api.kinds.rollouts.gates import GatesStatus, ReleaseGates, ShadowStatus
from learnloop_api.kinds.rollouts.rollout_steps import (
    AnsweredDecision,
    OverrideStatus,
    PastModel,
    Rollout,
    StandingOrder,
)
from learnloop_api.wire.routing import MOST_OVERRIDES

MOST = 1_000_000.0


class DecisionLimits(Resource):
    """Bounds on answered decisions. A caller that asks for more gets 429 and the time to retry after."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.perSecond) || has(self.perAgentPerSecond)",
            "a limit without a number limits nothing: set perSecond or perAgentPerSecond, or remove decisionLimits",
        ),
    )

    per_second: float | None = Field(
        default=None, gt=0, le=MOST, description="Of all agents together; left out: without bound."
    )
    per_agent_per_second: float | None = Field(
        default=None,
        gt=0,
        le=MOST,
        description="Of each agent, as episodes name it; left out: without bound. Those that name none count as one.",
    )


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
            "uniform://discrete/<actions>?observations=<size>: the uniform random policy, an honest baseline; of "
            "numbers uniform://continuous/<low>..<high>, of both uniform://hybrid/<choices>/<low>..<high>. "
            "base://<sha256>: the base model of languageModel alone."
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
    language: LanguageServing | None = Field(
        default=None,
        description="With languageModel: the server of the model, and its fallback; left out, vllm next to each "
        "gateway. A change of it is a new revision.",
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


class DeploymentTemplate(Resource):
    """Everything but the model: what a LearningAgent sets for the ModelDeployment it owns."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.analysis.metrics.exists(m, m.test == 'sequential')"
            " || self.rollout.steps.exists(s, s.weight > 0 && s.weight < 100)",
            "test: sequential compares arms while both get episodes: add a step with a weight from 1 to 99",
            ".rollout",
        ),
    )

    serving: Serving = Field(default_factory=Serving)
    routing: Routing = Field(default_factory=Routing)
    rollout: Rollout = Field(default_factory=Rollout)
    analysis: Analysis = Field(default_factory=Analysis)
    gates: ReleaseGates | None = Field(
        default=None,
        description=(
            "Suites, and a person's approval, that stand between a ready candidate and its first episode. "
            "Left out, a canary begins with its first step."
        ),
    )
    decision_limits: DecisionLimits | None = Field(
        default=None, description="How many decisions all pods together give in a second; left out: without bound."
    )


class ModelDeploymentSpec(DeploymentTemplate):
    """A served policy: which model, how it is served, and how a new one takes over."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.model.uri) || !self.model.uri.startsWith('base://') || (has(self.languageModel)"
            " && self.model.uri == 'base://' + self.languageModel.base.sha256)",
            "base:// is the model of spec.languageModel.base alone: write base:// and its sha256, or another model",
            ".model.uri",
        ),
        Rule(
            "!has(self.model.uri) || !has(self.languageModel) || !self.model.uri.startsWith('uniform://')",
            "uniform:// is a policy of numbers: write base://<sha256 of languageModel.base> for the base model alone",
            ".model.uri",
        ),
        Rule(
            "!has(self.serving.language) || has(self.languageModel)",
            "only a language model is served so: set languageModel, or remove serving.language",
            ".serving.language",
        ),
        Rule(
            "!has(self.gates) || !has(self.experiment)",
            "gates judge the canary alone, and an experiment would show other models to users: remove one of the two",
            ".experiment",
        ),
    )

    model: ModelSource
    language_model: LanguageModel | None = Field(
        default=None,
        description="spec.model is an adapter or the weights of this base model, and a gateway serves it; left out, "
        "spec.model is a policy of numbers.",
    )
    experiment: Experiment | None = Field(
        default=None,
        description=(
            "Other models that play next to stable while no rollout is under way. A changed experiment is another one; "
            "removing it takes its arms out, and hands back to spec.model what its winner had taken over."
        ),
    )
    suspend: bool = Field(
        default=False,
        description=(
            "true pauses all progress: no step, promotion, new canary or winner. Rollbacks still happen: by checks, "
            "the fast lane, lost pods, and the orders abort and reject."
        ),
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
    """A revision that was rolled back and is not tried again until someone says so."""

    revision: Revision = Field(description="The revision.")
    uri: Uri = Field(description="Address of its model.")
    sha256: Digest | None = Field(default=None, description="Digest of its model.")
    reason: ShortText = Field(description="One CamelCase word why.")
    message: ShortText = Field(description="One sentence why, with the numbers.")
    at: Time = Field(description="When it was rolled back.")


class ModelDeploymentStatus(Status):
    """Progress of the rollout, and the reason."""

    stable: ArmStatus | None = Field(default=None, description="The arm that serves everyone who is not on the canary.")
    canary: ArmStatus | None = Field(default=None, description="The arm on trial.")
    previous: ArmStatus | None = Field(default=None, description="The old arm, warm until keepForSeconds is over.")
    weight: int | None = Field(default=None, ge=0, le=100, description="Percent of new episodes for the canary.")
    step: int | None = Field(default=None, ge=0, le=20, description="Index of the current step, from 0.")
    step_weight: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description=(
            "The weight that spec.rollout.steps gave the current step when it was reached. Where it no longer does, "
            "the rollout continues at the last step that asks for no more than `weight`, or at the first."
        ),
    )
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
            "What was rolled back and keeps the wished model from being tried; where nothing does, what was "
            "rolled back last. `kubectl learnloop retry` unblocks it."
        ),
    )
    blocked_revisions: list[BlockedRevision] | None = Field(
        default=None,
        max_length=256,
        json_schema_extra={"listType": "map", "listMapKeys": ["revision"]},
        description=(
            "All that was rolled back, newest last. Neither the revision nor its artifact is tried again until "
            "`kubectl learnloop retry` names the revision, or says all. With more than 256 the oldest leaves."
        ),
    )
    evidence: list[MetricEvidence] | None = Field(
        default=None,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="What the rollout under way has compared with stable.",
    )
    experiment: ExperimentStatus | None = Field(default=None, description="The experiment under way, or the last one.")
    gates: GatesStatus | None = Field(default=None, description="What the gates have found of the last candidate.")
    shadow: ShadowStatus | None = Field(default=None, description="What the shadow steps of this rollout have shown.")
    routing_generation: int | None = Field(default=None, ge=0, description="Counts the writes of the routing table.")
    verdict: ShortText | None = Field(default=None, description="The last decision in one sentence.")
    replicas: int | None = Field(default=None, ge=0, description="Pods of the stable arm; the scale subresource.")
    selector: ShortText | None = Field(default=None, description="Label selector of these pods; for autoscalers.")
    standing_order: StandingOrder | None = Field(
        default=None, description="A person's order in force: pause, promote, undo."
    )
    last_stable: PastModel | None = Field(
        default=None,
        description="The model that served before the present one: where `kubectl learnloop undo` leads to.",
    )
    overrides: list[OverrideStatus] | None = Field(
        default=None,
        max_length=MOST_OVERRIDES,
        json_schema_extra={"listType": "atomic"},
        description=(
            "Where people decide in the policy's place by learnloop.dev/override, oldest first, and where they did "
            "within a day."
        ),
    )
    decisions: list[AnsweredDecision] | None = Field(
        default=None,
        max_length=20,
        json_schema_extra={"listType": "atomic"},
        description=(
            "What people decided by annotation, newest last: the last ten, and the last of each verb. Every value is "
            "answered once."
        ),
    )
