"""A revision is what a policy server would run: change any of it, and it is a new arm."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.learning_agent import LearningAgentStatus
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.allowed_pods import PodRules, forbidden
from learnloop_operator.core.artifact_uris import foreign
from learnloop_operator.rollout.model.arm_language_model import Spoken, spoken_by, stray_image
from learnloop_operator.rollout.model.snapshot import Desired, Model

_NO_S3 = "a gateway serves folders that are mounted: put the same folder on pvc://CLAIM/FOLDER or into oci://IMAGE"


def revision_of(uri: str, sha256: str | None, pod: PodOptions, spoken: Spoken | None = None) -> str:
    """First 8 hex digits of the SHA-256 over the canonical JSON of {uri, sha256, pod}, and of what it speaks by."""
    body: dict[str, Any] = {"uri": uri, "sha256": sha256, "pod": pod.to_kube()}
    if spoken is not None:
        body["language"] = spoken.to_kube()
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def model_here(spec: ModelDeploymentSpec, uri: str, sha256: str | None) -> Model:
    """A model as this spec would serve it now."""
    return Model(revision_of(uri, sha256, spec.serving.pod, spoken_by(spec)), uri, sha256)


def agent_status(body: Mapping[str, Any] | None) -> LearningAgentStatus | None:
    """What a LearningAgent as it was read says for `resolve`; a status that is none counts as empty."""
    if body is None:
        return None
    try:
        return LearningAgentStatus.model_validate(body.get("status") or {})
    except ValidationError:
        return LearningAgentStatus()


def resolve(
    spec: ModelDeploymentSpec,
    agent: LearningAgentStatus | None,
    namespace: str | None = None,
    rules: PodRules | None = None,
) -> Desired:
    """The model to serve: spec.model itself, or what the agent it names says (`agent` is None when there is none).

    The API server's rules know no namespace, so that an artifact is of the object's own is checked here;
    None leaves it out. So is what the platform allows on pods, by `rules`.
    """
    stray = forbidden(spec.serving.pod, "spec.serving.pod", rules) if rules else ""
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
        found = _desired(spec, agent.model.uri, agent.model.sha256, f"LearningAgent {name!r} status.model", namespace)
        return replace(found, suspended_agent=name if agent.phase == "Suspended" else "")
    if source.uri is None:
        return Desired(problem="spec.model: set uri and sha256, or learningAgentRef", final=True)
    return _desired(spec, source.uri, source.sha256, "spec.model", namespace)


def _desired(spec: ModelDeploymentSpec, uri: str, sha256: str | None, field: str, namespace: str | None) -> Desired:
    if namespace is not None and (stray := foreign(uri, namespace)):
        return Desired(problem=f"{field}.uri: {stray}", final=field == "spec.model")
    if sha256 is None and not uri.startswith(("uniform://", "base://")):
        missing = f"{field}.sha256: missing; every model but uniform:// needs the digest of its ONNX file"
        return Desired(problem=missing, final=field == "spec.model")
    if spec.language_model is not None and spec.language_model.base.uri.startswith("s3://"):
        return Desired(problem=f"languageModel.base.uri: {spec.language_model.base.uri}: {_NO_S3}", final=True)
    return Desired(model_here(spec, uri, sha256))
