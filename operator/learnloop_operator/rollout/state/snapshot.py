"""All that one decision about a ModelDeployment may look at, and the model that it resolves."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from learnloop_api.kinds import base, language_model, learning_agent, model_deployment
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.core import allowed_pods, artifacts, plan, times
from learnloop_operator.rollout import fast_lane, gate_verdict
from learnloop_operator.rollout.evidence import Evidence

GIVE_UP_RESTARTS = 3
"""A container that has died this often with a sentence on its lips is not going to start."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Both as the spec had them when the arm was made."""

    model: language_model.LanguageModel
    serving: language_model.LanguageServing

    def to_kube(self) -> dict[str, Any]:
        """As the arm's annotation keeps it."""
        return {"model": self.model.to_kube(), "serving": self.serving.to_kube()}


def stray_image(spoken: Spoken, rules: allowed_pods.PodRules) -> str:
    """The image or volume that the platform forbids; "" when it allows all."""
    pods = base.PodOptions(image=spoken.serving.server.image)
    return allowed_pods.forbidden(pods, "spec.serving.language.server", rules) or allowed_pods.forbidden_base(
        spoken.model, "spec.languageModel", rules
    )


def spoken_by(spec: model_deployment.ModelDeploymentSpec) -> Spoken | None:
    """The language model of new arms; None: numeric policies."""
    if spec.language_model is None:
        return None
    # A registration elsewhere does not change the arm.
    serving = (spec.serving.language or language_model.LanguageServing()).model_copy(update={"registration": None})
    return Spoken(spec.language_model, serving)


def read_spoken(body: Any) -> Spoken | None:
    """Reads an arm's annotation. Raises ValueError, TypeError or KeyError when it is invalid."""
    if body is None:
        return None
    return Spoken(
        language_model.LanguageModel.model_validate(body["model"]),
        language_model.LanguageServing.model_validate(body["serving"]),
    )


# What one decision about a ModelDeployment may look at: the frozen snapshot and its parts.


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the revision it gets here: the digest of uri, sha256 and the pod options it runs with."""

    revision: str
    uri: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """The model the user wants served now, or the sentence why there is none yet."""

    model: Model | None = None
    problem: str = ""
    final: bool = False
    """Only a change of this object's spec solves the problem."""
    suspended_agent: str = ""
    """Name of the LearningAgent that the model comes from, while it is suspended and its actors play nothing."""


@dataclass(frozen=True, slots=True)
class LiveArm:
    """One arm as the cluster has it."""

    ready: int = 0
    replicas: int = 0
    restarts: int = 0
    message: str = ""
    """The last sentence a container of the arm left behind, or why its pods cannot run."""
    pod: base.PodOptions | None = None
    """The pod options the arm was made with; None for an arm made by someone else."""
    model: Model | None = None
    """The model the arm was made with."""
    spoken: Spoken | None = None
    """The language model that it speaks by, as it was made; None: a policy of numbers."""
    unready_since: str | None = None
    """Since when it has had too few ready pods; None: it has enough, or it is unknown."""

    @property
    def hopeless(self) -> bool:
        """Whether the pods have said, often enough, why they cannot serve this model."""
        return self.ready == 0 and self.restarts >= GIVE_UP_RESTARTS and bool(self.message)


@dataclass(frozen=True, slots=True)
class LiveRoute:
    """gateway mode: our HTTPRoute as it stands."""

    weights: Mapping[str, int] = field(default_factory=dict)
    """Percent of new episodes by revision; a revision that is not in it has no rule at all."""
    blocked: model_deployment.BlockedRevision | None = None
    """The verdict written with it."""


@dataclass(frozen=True, slots=True)
class LiveRouting:
    """The routing ConfigMap: the table in force and the verdict written with it; in gateway mode the route, too."""

    table: RoutingTable | None = None
    blocked: model_deployment.BlockedRevision | None = None
    route: LiveRoute | None = None
    """None: there is none, or it belongs to somebody else."""

    def verdicts(self) -> tuple[model_deployment.BlockedRevision, ...]:
        """Verdicts in force: what carries one of them no longer names its revision.

        The HTTPRoute and the ConfigMap are two writes, and whichever was the last one before an operator died has it.
        """
        result, listed = [], self.table.arms if self.table else []
        if self.blocked and self.blocked.revision not in [arm.revision for arm in listed]:
            result.append(self.blocked)
        if self.route and self.route.blocked and self.route.blocked.revision not in self.route.weights:
            result.append(self.route.blocked)
        return tuple(result)


@dataclass(frozen=True, slots=True)
class Callers:
    """The callers that policy servers accept, as the installation decides."""

    verified_by: str = "anybody"
    """token: by a service-account token of audience learnloop; anybody: callers are not checked."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose accounts are served in addition to those of the ModelDeployment's own namespace."""
    peers: tuple[Mapping[str, Any], ...] | None = None
    """networking/v1 NetworkPolicyPeers that may reach policy servers, besides pods of their own namespace and gateway.
    None: no NetworkPolicy is made."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of the installation for every policy server."""

    image: str
    data_url: str
    image_pull_policy: str = "IfNotPresent"
    names_are_verified: bool = False
    """An admission policy lets no one write another's name into a verb's annotation."""
    tls: tuple[str, ...] = ()
    """Namespaces whose pods serve by TLS."""
    callers: Callers = Callers()
    four_eyes: bool = False
    """Four eyes: the author of the spec may not let its canary on."""
    pods: allowed_pods.PodRules = field(default_factory=allowed_pods.PodRules)
    """Rules for pods made for others."""
    model_servers: Mapping[str, str] = field(default_factory=dict)
    """Images of the servers of language models, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(plan.BaseSnapshot):
    """Everything `decide` knows. Equal snapshots give equal plans."""

    spec: model_deployment.ModelDeploymentSpec
    before: model_deployment.ModelDeploymentStatus
    """The status as the last look left it."""
    ahead: timedelta = timedelta()
    """How far the API server's clock is ahead of `now`."""
    desired: Desired
    arms: Mapping[str, LiveArm] = field(default_factory=dict)
    routing: LiveRouting = LiveRouting()
    evidence: Evidence = field(default_factory=Evidence)
    direct: Mapping[str, fast_lane.PodEvidence] = field(default_factory=dict)
    """Counters that the pods of each arm on trial serve, by revision; empty where they were not asked."""
    suite_runs: Mapping[str, gate_verdict.SuiteRun] = field(default_factory=dict)
    """The gates' suites, by the name of their Job."""
    reports_problem: str = ""
    """Why the suites' reports cannot be had; "" when they can."""
    defaults: Defaults
    fresh_key: str = field(default="", repr=False)
    """Newly drawn by gather for a ModelDeployment that has no key of its episodes yet; never the one in use."""
    route_problem: str = ""
    """gateway mode: why the HTTPRoute is not in force, in the words of its controller."""

    @property
    def cluster_now(self) -> datetime:
        """`now` by the API server's clock: for moments that others have to read as we do."""
        return self.now + self.ahead

    @property
    def scheme(self) -> str:
        """How an arm is spoken to. A Gateway speaks plain HTTP to its backends."""
        return "https" if self.namespace in self.defaults.tls and self.spec.routing.mode == "service" else "http"

    def arm(self, revision: str) -> LiveArm:
        """The arm as the cluster has it; an absent one has no pods."""
        return self.arms.get(revision) or LiveArm()

    def look_at_pods(self, revision: str) -> float:
        """Seconds until another look at an arm whose pods are not ready. Where none was made yet none can say anything:
        why none is made, and that one is there, its Deployment tells."""
        arm = self.arms.get(revision)
        if arm is not None and not arm.replicas:
            return times.LATEST
        return times.next_look(arm.unready_since if arm else None, self.now)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations for the operator, cut to what a status can hold."""
        return plan.obeyed(self.object)


# A revision is what a policy server would run: change any of it, and it is a new arm.


_NO_S3 = "a gateway serves folders that are mounted: put the same folder on pvc://CLAIM/FOLDER or into oci://IMAGE"


def revision_of(uri: str, sha256: str | None, pod: base.PodOptions, spoken: Spoken | None = None) -> str:
    """First 8 hex digits of the SHA-256 over the canonical JSON of {uri, sha256, pod}, and of what it speaks by."""
    body: dict[str, Any] = {"uri": uri, "sha256": sha256, "pod": pod.to_kube()}
    if spoken is not None:
        body["language"] = spoken.to_kube()
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def model_here(spec: model_deployment.ModelDeploymentSpec, uri: str, sha256: str | None) -> Model:
    """A model as this spec would serve it now."""
    return Model(revision_of(uri, sha256, spec.serving.pod, spoken_by(spec)), uri, sha256)


def agent_status(body: Mapping[str, Any] | None) -> learning_agent.LearningAgentStatus | None:
    """Status of a LearningAgent for `resolve`; an invalid status counts as empty."""
    if body is None:
        return None
    try:
        return learning_agent.LearningAgentStatus.model_validate(body.get("status") or {})
    except ValidationError:
        return learning_agent.LearningAgentStatus()


def resolve(
    spec: model_deployment.ModelDeploymentSpec,
    agent: learning_agent.LearningAgentStatus | None,
    namespace: str | None = None,
    rules: allowed_pods.PodRules | None = None,
) -> Desired:
    """The model to serve: spec.model itself, or what the agent it names says (`agent` is None when there is none).

    The API server's rules know no namespace, so that an artifact is of the object's own is checked here;
    None leaves it out. So is what the platform allows on pods, by `rules`.
    """
    stray = allowed_pods.forbidden(spec.serving.pod, "spec.serving.pod", rules) if rules else ""
    spoken = spoken_by(spec)
    if rules and spoken is not None:
        stray = stray or stray_image(spoken, rules)
    if stray:
        return Desired(problem=stray, final=True)
    source = spec.model
    if source.learning_agent_ref is not None:
        name = source.learning_agent_ref.name
        if agent is None:
            return Desired(
                problem=f"spec.model.learningAgentRef: no LearningAgent {name!r} in this namespace; create it"
            )
        if agent.model is None:
            return Desired(problem=f"LearningAgent {name!r} has no model yet")
        result = _desired(spec, agent.model.uri, agent.model.sha256, f"LearningAgent {name!r} status.model", namespace)
        return replace(result, suspended_agent=name if agent.phase == "Suspended" else "")
    if source.uri is None:
        return Desired(problem="spec.model: set uri and sha256, or learningAgentRef", final=True)
    return _desired(spec, source.uri, source.sha256, "spec.model", namespace)


def _desired(
    spec: model_deployment.ModelDeploymentSpec, uri: str, sha256: str | None, field: str, namespace: str | None
) -> Desired:
    if namespace is not None and (stray := artifacts.foreign(uri, namespace)):
        return Desired(problem=f"{field}.uri: {stray}", final=field == "spec.model")
    if sha256 is None and not uri.startswith(("uniform://", "base://")):
        missing = f"{field}.sha256: missing; every model but uniform:// needs the digest of its ONNX file"
        return Desired(problem=missing, final=field == "spec.model")
    if spec.language_model is not None and spec.language_model.base.uri.startswith("s3://"):
        return Desired(problem=f"languageModel.base.uri: {spec.language_model.base.uri}: {_NO_S3}", final=True)
    return Desired(model_here(spec, uri, sha256))
